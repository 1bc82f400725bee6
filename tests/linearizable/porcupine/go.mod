// The checker of histories: the version of Porcupine that ./run linearizable builds with.
module linearizable

go 1.21

require github.com/anishathalye/porcupine v1.3.1

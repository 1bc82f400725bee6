// An echo service in aeron-go's container: the peer "go" of the benchmarks. Its place comes from the variables
// AERON_DIR, AERON_CLUSTER_DIR, AERON_CLUSTER_ID and AERON_CLUSTER_IDLE_STRATEGY, as for our own container.
package main

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"time"

	"github.com/lirm/aeron-go/aeron"
	"github.com/lirm/aeron-go/aeron/atomic"
	"github.com/lirm/aeron-go/aeron/idlestrategy"
	"github.com/lirm/aeron-go/aeron/logbuffer"
	"github.com/lirm/aeron-go/cluster"
	"github.com/lirm/aeron-go/cluster/codecs"
)

type echoService struct {
	cluster cluster.Cluster
}

func (s *echoService) OnSessionMessage(session cluster.ClientSession, _ int64, buffer *atomic.Buffer, offset int32,
	length int32, _ *logbuffer.Header) {
	for session != nil {
		result := session.Offer(buffer, offset, length, nil)
		if result != aeron.BackPressured && result != aeron.AdminAction {
			return
		}
		s.cluster.IdleStrategy().Idle(0)
	}
}

func (s *echoService) OnStart(c cluster.Cluster, _ aeron.Image)                            { s.cluster = c }
func (s *echoService) OnSessionOpen(cluster.ClientSession, int64)                          {}
func (s *echoService) OnSessionClose(cluster.ClientSession, int64, codecs.CloseReasonEnum) {}
func (s *echoService) OnTimerEvent(int64, int64)                                           {}
func (s *echoService) OnTakeSnapshot(*aeron.Publication)                                   {}
func (s *echoService) OnRoleChange(cluster.Role)                                           {}
func (s *echoService) OnTerminate(cluster.Cluster)                                         {}
func (s *echoService) OnNewLeadershipTermEvent(_, _, _, _ int64, _, _ int32, _ codecs.ClusterTimeUnitEnum, _ int32) {
}

var backoff = regexp.MustCompile(`^backoff\((\d+),(\d+),(\w+),(\w+)\)$`)

func idleStrategy(text string) (idlestrategy.Idler, error) {
	if text == "yield" {
		return idlestrategy.Yielding{}, nil
	}
	found := backoff.FindStringSubmatch(text)
	if found == nil {
		return nil, fmt.Errorf("AERON_CLUSTER_IDLE_STRATEGY=%s: not yield or backoff(spins,yields,min,max)", text)
	}
	spins, _ := strconv.ParseInt(found[1], 10, 64)
	yields, _ := strconv.ParseInt(found[2], 10, 64)
	least, err := time.ParseDuration(found[3])
	if err != nil {
		return nil, err
	}
	most, err := time.ParseDuration(found[4])
	if err != nil {
		return nil, err
	}
	return idlestrategy.NewBackoffIdleStrategy(spins, yields, least.Nanoseconds(), most.Nanoseconds()), nil
}

func run() error {
	idle, err := idleStrategy(os.Getenv("AERON_CLUSTER_IDLE_STRATEGY"))
	if err != nil {
		return err
	}
	options := cluster.NewOptions()
	options.IdleStrategy = idle
	options.ClusterDir = os.Getenv("AERON_CLUSTER_DIR")
	if text := os.Getenv("AERON_CLUSTER_ID"); text != "" {
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return err
		}
		options.ClusterId = int32(id)
	}
	context := aeron.NewContext().AeronDir(os.Getenv("AERON_DIR"))
	agent, err := cluster.NewClusteredServiceAgent(context, options, &echoService{})
	if err != nil {
		return err
	}
	return agent.StartAndRun()
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// Requests to an archive over Java's AeronArchive, one at a time.
package container.benchmarks;

import io.aeron.archive.client.AeronArchive;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Arrays;

/**
 * For each number on its standard input, makes so many requests and prints what each took; set up by the system
 * properties of {@code AeronArchive.Context}.
 */
public final class ArchiveClient
{
    private ArchiveClient()
    {
    }

    public static void main(final String[] args) throws IOException
    {
        try (AeronArchive archive = AeronArchive.connect())
        {
            System.out.println("READY");
            final BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
            String line;
            while (null != (line = input.readLine()))
            {
                final String[] words = line.trim().split(" ");
                final long recordingId = Long.parseLong(words[0]);
                final long[] durationsNs = new long[Integer.parseInt(words[1])];
                final long firstNs = System.nanoTime();
                for (int i = 0; i < durationsNs.length; i++)
                {
                    final long startNs = System.nanoTime();
                    archive.getStartPosition(recordingId);
                    durationsNs[i] = System.nanoTime() - startNs;
                }
                final double seconds = (System.nanoTime() - firstNs) / 1e9;
                Arrays.sort(durationsNs);
                System.out.println(
                    "{\"p50_us\": " + durationsNs[durationsNs.length / 2] / 1e3 +
                    ", \"p99_us\": " + durationsNs[(int)(durationsNs.length * 0.99)] / 1e3 +
                    ", \"requests_per_s\": " + durationsNs.length / seconds + "}");
            }
        }
    }
}

// Writes a member's recording log and node state with the reference classes, from lines on stdin, and prints both.
package container.tests;

import io.aeron.cluster.NodeStateFile;
import io.aeron.cluster.RecordingLog;

import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;

/**
 * The argument is the cluster directory. Each line is what to do, with its arguments, all separated by spaces:
 * {@code term}, {@code snapshot}, {@code standby}, {@code commit}, {@code invalidate}, {@code candidate}. At the end
 * each entry of the recording log is printed, then the node state.
 */
public final class MemberFiles
{
    private MemberFiles()
    {
    }

    public static void main(final String[] args) throws IOException
    {
        final File directory = new File(args[0]);
        try (
            RecordingLog log = new RecordingLog(directory, true);
            NodeStateFile state = new NodeStateFile(directory, true, 1);
            BufferedReader input = new BufferedReader(new InputStreamReader(System.in)))
        {
            for (String line = input.readLine(); null != line; line = input.readLine())
            {
                apply(log, state, line.split(" "));
            }
            for (final RecordingLog.Entry entry : log.entries())
            {
                System.out.println(String.join(
                    " ",
                    String.valueOf(entry.entryIndex),
                    String.valueOf(entry.recordingId),
                    String.valueOf(entry.leadershipTermId),
                    String.valueOf(entry.termBaseLogPosition),
                    String.valueOf(entry.logPosition),
                    String.valueOf(entry.timestamp),
                    String.valueOf(entry.serviceId),
                    String.valueOf(entry.type),
                    String.valueOf(entry.isValid),
                    String.valueOf(entry.archiveEndpoint)));
            }
            System.out.println(String.join(
                " ",
                String.valueOf(state.candidateTerm().candidateTermId()),
                String.valueOf(state.candidateTerm().logPosition()),
                String.valueOf(state.candidateTerm().timestamp())));
        }
    }

    private static void apply(final RecordingLog log, final NodeStateFile state, final String[] words)
    {
        final long[] n = new long[words.length];
        for (int i = 1; i < words.length && i < 7; i++)
        {
            n[i] = Long.parseLong(words[i]);
        }
        switch (words[0])
        {
            case "term":
                log.appendTerm(n[1], n[2], n[3], n[4]);
                break;
            case "snapshot":
                log.appendSnapshot(n[1], n[2], n[3], n[4], n[5], (int)n[6]);
                break;
            case "standby":
                log.appendStandbySnapshot(n[1], n[2], n[3], n[4], n[5], (int)n[6], words[7]);
                break;
            case "commit":
                log.commitLogPosition(n[1], n[2]);
                break;
            case "invalidate":
                log.invalidateLatestSnapshot();
                break;
            case "candidate":
                state.proposeMaxCandidateTermId(n[1], n[2], n[3]);
                break;
            default:
                throw new IllegalArgumentException("unknown: " + words[0]);
        }
    }
}

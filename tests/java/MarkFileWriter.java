// Writes a service container's mark file with the reference classes, from given values only, for byte comparison.
package container.tests;

import io.aeron.cluster.codecs.mark.ClusterComponentType;
import io.aeron.cluster.service.ClusterMarkFile;
import java.io.File;
import java.util.HashMap;
import java.util.Map;

/**
 * First argument: the file to create, or to take over. Then {@code name=value} for each field that differs from the
 * defaults in {@link #main}. The file is left as after a container's start: ready and, at time {@code now-ms}, active.
 */
public final class MarkFileWriter
{
    private static final long LIVENESS_TIMEOUT_MS = 10_000;

    private MarkFileWriter()
    {
    }

    public static void main(final String[] args)
    {
        final Map<String, String> values = new HashMap<>();
        values.put("now-ms", "1700000000000");
        values.put("pid", "4711");
        values.put("error-buffer-length", "1048576");
        values.put("file-page-size", "4096");
        values.put("archive-stream-id", "10");
        values.put("service-stream-id", "104");
        values.put("consensus-module-stream-id", "105");
        values.put("member-id", "-1");
        values.put("service-id", "0");
        values.put("cluster-id", "0");
        values.put("aeron-directory", "/dev/shm/aeron");
        values.put("control-channel", "aeron:ipc?term-length=128k");
        values.put("service-name", "clustered-service-0-0");
        for (int i = 1; i < args.length; i++)
        {
            final String[] parts = args[i].split("=", 2);
            if (parts.length < 2 || null == values.replace(parts[0], parts[1]))
            {
                System.err.println("unknown argument: " + args[i] + ", expected name=value of " + values.keySet());
                System.exit(1);
            }
        }

        write(new File(args[0]), values);
    }

    private static void write(final File file, final Map<String, String> values)
    {
        final long nowMs = Long.parseLong(values.get("now-ms"));
        try (ClusterMarkFile markFile = new ClusterMarkFile(
            file,
            ClusterComponentType.CONTAINER,
            intOf(values, "error-buffer-length"),
            () -> nowMs,
            LIVENESS_TIMEOUT_MS,
            intOf(values, "file-page-size")))
        {
            markFile.encoder()
                .pid(Long.parseLong(values.get("pid")))
                .archiveStreamId(intOf(values, "archive-stream-id"))
                .serviceStreamId(intOf(values, "service-stream-id"))
                .consensusModuleStreamId(intOf(values, "consensus-module-stream-id"))
                .ingressStreamId(-1)
                .memberId(intOf(values, "member-id"))
                .serviceId(intOf(values, "service-id"))
                .clusterId(intOf(values, "cluster-id"))
                .aeronDirectory(values.get("aeron-directory"))
                .controlChannel(values.get("control-channel"))
                .ingressChannel(null)
                .serviceName(values.get("service-name"))
                .authenticator(null);
            markFile.signalReady(nowMs);
            markFile.force();
        }
    }

    private static int intOf(final Map<String, String> values, final String name)
    {
        return Integer.parseInt(values.get(name));
    }
}

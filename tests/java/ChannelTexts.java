// Reads channels from stdin and prints what upstream's archive makes of each: stripped, key, response, replay.
package container.tests;

import io.aeron.ChannelUri;
import io.aeron.ChannelUriStringBuilder;
import io.aeron.CommonContext;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;

import org.agrona.SystemUtil;

/**
 * Each line is a question, its words separated by tabs; the answer is "=" and a text, or "!" and why there is none:
 * <pre>
 * stripped CHANNEL
 * key STREAM_ID CHANNEL
 * response TERM_LENGTH MTU_LENGTH IS_SPARSE IMAGE_CORRELATION_ID CHANNEL
 * replay POSITION INITIAL_TERM_ID TERM_LENGTH MTU_LENGTH LINGER_NS CHANNEL
 * </pre>
 * The first two call methods of upstream's ArchiveConductor; the others do what it does in the middle of longer ones.
 */
public final class ChannelTexts
{
    private final Method strippedChannelBuilder;
    private final Method makeKey;

    private ChannelTexts() throws ReflectiveOperationException
    {
        final Class<?> conductor = Class.forName("io.aeron.archive.ArchiveConductor");
        strippedChannelBuilder = conductor.getDeclaredMethod("strippedChannelBuilder", ChannelUri.class);
        strippedChannelBuilder.setAccessible(true);
        makeKey = conductor.getDeclaredMethod("makeKey", int.class, ChannelUri.class);
        makeKey.setAccessible(true);
    }

    /**
     * Answers the questions on stdin.
     *
     * @param args not used.
     * @throws Exception if upstream's methods are not there, or stdin cannot be read.
     */
    public static void main(final String[] args) throws Exception
    {
        new ChannelTexts().run();
    }

    private void run() throws IOException
    {
        final BufferedReader input =
            new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            System.out.println(answer(line.split("\t", -1)));
        }
    }

    private String answer(final String[] words)
    {
        try
        {
            final ChannelUri channelUri = ChannelUri.parse(words[words.length - 1]);
            return "=" + switch (words[0])
            {
                case "stripped" -> stripped(channelUri).build();
                case "key" -> makeKey.invoke(null, Integer.parseInt(words[1]), channelUri);
                case "response" -> response(words, channelUri);
                default -> replay(words, channelUri);
            };
        }
        catch (final InvocationTargetException ex)
        {
            return "!" + ex.getCause();
        }
        catch (final ReflectiveOperationException | RuntimeException ex)
        {
            return "!" + ex;
        }
    }

    private ChannelUriStringBuilder stripped(final ChannelUri channelUri) throws ReflectiveOperationException
    {
        return (ChannelUriStringBuilder)strippedChannelBuilder.invoke(null, channelUri);
    }

    private String response(final String[] words, final ChannelUri channelUri) throws ReflectiveOperationException
    {
        final String mtu = channelUri.get(CommonContext.MTU_LENGTH_PARAM_NAME);
        final String termLength = channelUri.get(CommonContext.TERM_LENGTH_PARAM_NAME);
        final String sparse = channelUri.get(CommonContext.SPARSE_PARAM_NAME);
        final ChannelUriStringBuilder builder = stripped(channelUri)
            .termLength((int)SystemUtil.parseSize("term-length", null == termLength ? words[1] : termLength))
            .sparse(Boolean.parseBoolean(null == sparse ? words[3] : sparse))
            .mtu((int)SystemUtil.parseSize("mtu", null == mtu ? words[2] : mtu));
        if (channelUri.hasControlModeResponse())
        {
            builder.responseCorrelationId(Long.valueOf(words[4]));
        }
        return builder.build();
    }

    private String replay(final String[] words, final ChannelUri channelUri) throws ReflectiveOperationException
    {
        final String linger = channelUri.get(CommonContext.LINGER_PARAM_NAME);
        return stripped(channelUri)
            .initialPosition(Long.parseLong(words[1]), Integer.parseInt(words[2]), Integer.parseInt(words[3]))
            .eos(channelUri)
            .sparse(channelUri)
            .mtu(Integer.valueOf(words[4]))
            .linger(Long.valueOf(null == linger ? words[5] : linger))
            .build();
    }
}

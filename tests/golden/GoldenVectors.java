// Fills in a golden vector file, read from stdin, with what the reference encoders of the aeron-all jar make.

import org.agrona.ExpandableArrayBuffer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.stream.Collectors;
import java.util.stream.Stream;

/**
 * Each line of the file is a question, and after an arrow the answer, which this program computes anew:
 * <pre>
 * schema PACKAGE                  the schema's id and version
 * enum NAME                       its constants
 * layout MESSAGE                  ids and lengths, fields as offset/since/null, group/since, var data as var/since
 * layout MESSAGE.GROUP            the same of an element of a repeating group
 * MESSAGE name=value ...          the encoded bytes in hex, behind an 8-byte message header
 * </pre>
 * A repeating group is its number of elements, and then group.index.name=value for each of their fields.
 * Empty lines and lines that begin with # stay as they are. Names are in snake case. A value is a decimal
 * number (of an enum too), "null", text without spaces, or 0x and hex digits for var data that is not text.
 */
public final class GoldenVectors
{
    private static final String ARROW = " -> ";
    private static final String HEX_PREFIX = "0x";
    private static final int HEADER_LENGTH = 8;

    private final BufferedReader input =
        new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
    private String codecs;

    /**
     * Completes the file on stdin.
     *
     * @param args not used.
     * @throws Exception if a line names what the reference codecs do not have.
     */
    public static void main(final String[] args) throws Exception
    {
        new GoldenVectors().run();
    }

    private void run() throws IOException, ReflectiveOperationException
    {
        for (String line = input.readLine(); line != null; line = input.readLine())
        {
            final String question = line.split(ARROW)[0];
            System.out.println(
                question.isEmpty() || question.startsWith("#") ? line : question + ARROW + answer(question));
        }
    }

    private String answer(final String question) throws ReflectiveOperationException
    {
        final String[] words = question.split(" ");
        switch (words[0])
        {
            case "schema":
                codecs = words[1];
                return schema();
            case "enum":
                return constants(words[1]);
            case "layout":
                return layout(words[1].split("\\."));
            default:
                return encode(words[0], Arrays.asList(words).subList(1, words.length));
        }
    }

    private String schema() throws ReflectiveOperationException
    {
        final Class<?> header = codec("MessageHeader", "Decoder");
        return "id=" + header.getField("SCHEMA_ID").get(null) +
            " version=" + header.getField("SCHEMA_VERSION").get(null);
    }

    private String constants(final String name) throws ReflectiveOperationException
    {
        final StringBuilder text = new StringBuilder();
        for (final Object constant : codec(name, "").getEnumConstants())
        {
            text.append(text.isEmpty() ? "" : " ").append(constant).append('=').append(enumValue(constant));
        }
        return text.toString();
    }

    private String layout(final String[] path) throws ReflectiveOperationException
    {
        final Class<?> message = codec(path[0], "Decoder");
        final Class<?> decoder = path.length == 1 ?
            message : message.getMethod(camelCase(path[1])).getReturnType();
        final StringBuilder text = new StringBuilder(path.length == 1 ?
            "id=" + decoder.getField("TEMPLATE_ID").get(null) + " block=" + decoder.getField("BLOCK_LENGTH").get(null) :
            "block=" + call(decoder, "sbeBlockLength"));
        for (final String field : fields(decoder, "EncodingOffset", "EncodingOffset"))
        {
            text.append(' ').append(snakeCase(field)).append('=')
                .append(call(decoder, field + "EncodingOffset")).append('/')
                .append(call(decoder, field + "SinceVersion")).append('/')
                .append(nullValue(decoder, field));
        }
        for (final String group : fields(decoder, "DecoderId", "DecoderId"))
        {
            text.append(' ').append(snakeCase(group)).append("=group/")
                .append(call(decoder, group + "DecoderSinceVersion"));
        }
        for (final String field : fields(decoder, "HeaderLength", "Id"))
        {
            text.append(' ').append(snakeCase(field)).append("=var/")
                .append(call(decoder, field + "SinceVersion"));
        }
        return text.toString();
    }

    /** Names of the fields that have a method with that suffix, ordered by another method of theirs. */
    private static List<String> fields(final Class<?> decoder, final String suffix, final String order)
    {
        return Stream.of(decoder.getMethods())
            .map(Method::getName)
            .filter((name) -> name.endsWith(suffix))
            .map((name) -> name.substring(0, name.length() - suffix.length()))
            .sorted((a, b) -> Integer.compare(number(decoder, a + order), number(decoder, b + order)))
            .collect(Collectors.toList());
    }

    private static int number(final Class<?> decoder, final String method)
    {
        try
        {
            return ((Number)call(decoder, method)).intValue();
        }
        catch (final ReflectiveOperationException ex)
        {
            throw new IllegalStateException(ex);
        }
    }

    private static Object nullValue(final Class<?> codec, final String field)
        throws ReflectiveOperationException
    {
        final Class<?> type = codec.getMethod(field).getReturnType();
        return type.isEnum() ? enumValue(enumConstant(type, "NULL_VAL")) : call(codec, field + "NullValue");
    }

    private String encode(final String message, final List<String> assignments)
        throws ReflectiveOperationException
    {
        final Class<?> type = codec(message, "Encoder");
        final Class<?> headerType = codec("MessageHeader", "Encoder");
        final Object encoder = type.getConstructor().newInstance();
        final ExpandableArrayBuffer buffer = new ExpandableArrayBuffer();
        type.getMethod("wrapAndApplyHeader", org.agrona.MutableDirectBuffer.class, int.class, headerType)
            .invoke(encoder, buffer, 0, headerType.getConstructor().newInstance());
        Object group = null;
        String index = null;
        for (final String assignment : assignments)
        {
            final int equals = assignment.indexOf('=');
            final String[] path = assignment.substring(0, equals).split("\\.");
            final String name = camelCase(path[path.length - 1]), value = assignment.substring(equals + 1);
            if (path.length > 1)
            {
                if (!path[1].equals(index))
                {
                    group.getClass().getMethod("next").invoke(group);
                    index = path[1];
                }
                assign(group, name, value);
            }
            else if (isGroup(type, name))
            {
                group = type.getMethod(name + "Count", int.class).invoke(encoder, Integer.parseInt(value));
                index = null;
            }
            else
            {
                assign(encoder, name, value);
            }
        }
        final byte[] bytes = new byte[HEADER_LENGTH + (int)type.getMethod("encodedLength").invoke(encoder)];
        buffer.getBytes(0, bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static boolean isGroup(final Class<?> encoder, final String name)
    {
        return Stream.of(encoder.getMethods()).anyMatch((method) -> method.getName().equals(name + "Count"));
    }

    private static void assign(final Object encoder, final String field, final String value)
        throws ReflectiveOperationException
    {
        for (final Method method : encoder.getClass().getMethods())
        {
            // Text can be set as a CharSequence as well; the String variant is the plain one.
            if (method.getName().equals(field) && method.getParameterCount() == 1)
            {
                final Class<?> type = method.getParameterTypes()[0];
                if (type != CharSequence.class)
                {
                    method.invoke(encoder, argument(encoder.getClass(), field, type, value));
                    return;
                }
            }
        }
        final String put = "put" + Character.toUpperCase(field.charAt(0)) + field.substring(1);
        final byte[] bytes = HexFormat.of().parseHex(value.substring(HEX_PREFIX.length()));
        encoder.getClass().getMethod(put, byte[].class, int.class, int.class)
            .invoke(encoder, bytes, 0, bytes.length);
    }

    private static Object argument(
        final Class<?> encoder, final String field, final Class<?> type, final String value)
        throws ReflectiveOperationException
    {
        if (type.isEnum())
        {
            return value.equals("null") ?
                enumConstant(type, "NULL_VAL") :
                type.getMethod("get", int.class).invoke(null, Integer.parseInt(value));
        }
        if (type == String.class)
        {
            return value;
        }
        if (value.equals("null"))
        {
            return call(encoder, field + "NullValue");
        }
        if (type == short.class)
        {
            return Short.parseShort(value);
        }
        return type == int.class ? (Object)Integer.parseInt(value) : (Object)Long.parseLong(value);
    }

    private Class<?> codec(final String name, final String suffix) throws ClassNotFoundException
    {
        return Class.forName(codecs + "." + name + suffix);
    }

    private static Object call(final Class<?> type, final String method) throws ReflectiveOperationException
    {
        return type.getMethod(method).invoke(null);
    }

    private static Object enumConstant(final Class<?> type, final String name)
        throws ReflectiveOperationException
    {
        return type.getMethod("valueOf", String.class).invoke(null, name);
    }

    private static Object enumValue(final Object constant) throws ReflectiveOperationException
    {
        return constant.getClass().getMethod("value").invoke(constant);
    }

    private static String camelCase(final String name)
    {
        final StringBuilder text = new StringBuilder();
        for (final String word : name.split("_"))
        {
            text.append(text.isEmpty() ? word : Character.toUpperCase(word.charAt(0)) + word.substring(1));
        }
        return text.toString();
    }

    private static String snakeCase(final String name)
    {
        return name.replaceAll("([A-Z])", "_$1").toLowerCase();
    }
}

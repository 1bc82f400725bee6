// Says what Real Logic's sbe-tool makes of schemas and messages. Requests come on standard input: a letter, then
// numbers and byte strings with their lengths; each answer is a line of JSON on standard output.
package container.tests.sbe;

import java.io.BufferedOutputStream;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.ByteOrder;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;
import org.agrona.DirectBuffer;
import org.agrona.ExpandableArrayBuffer;
import org.agrona.concurrent.UnsafeBuffer;
import org.xml.sax.InputSource;
import uk.co.real_logic.sbe.PrimitiveType;
import uk.co.real_logic.sbe.PrimitiveValue;
import uk.co.real_logic.sbe.ir.Encoding;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.ir.Signal;
import uk.co.real_logic.sbe.ir.Token;
import uk.co.real_logic.sbe.otf.OtfHeaderDecoder;
import uk.co.real_logic.sbe.otf.OtfMessageDecoder;
import uk.co.real_logic.sbe.otf.TokenListener;
import uk.co.real_logic.sbe.otf.Types;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/** Answers requests until standard input ends. */
public final class SbeOracle
{
    private static final String[] TEXTS = {"", "A", "AB", "Zürich", "漢字 and more", "x y z", "ÄÖ", "€uro"};

    private Ir ir;

    private SbeOracle()
    {
    }

    /** Reads requests. */
    public static void main(final String[] arguments) throws IOException
    {
        final DataInputStream in = new DataInputStream(System.in);
        final PrintStream out = new PrintStream(new BufferedOutputStream(System.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        final SbeOracle oracle = new SbeOracle();
        while (true)
        {
            final int request = in.read();
            if (request < 0)
            {
                return;
            }
            String answer;
            try
            {
                answer = oracle.answer(request, in);
            }
            catch (final IOException gone)
            {
                throw gone;
            }
            catch (final Exception | StackOverflowError | OutOfMemoryError error)
            {
                answer = "{\"error\": " + quoted(error.toString()) + "}";
            }
            out.println(answer);
            out.flush();
        }
    }

    private String answer(final int request, final DataInputStream in) throws Exception
    {
        switch (request)
        {
            case 'S':
                return schema(in.readNBytes(in.readInt()));
            case 'W':
                return write(in.readInt(), in.readInt(), in.readInt(), in.readLong());
            case 'R':
                return read(in.readNBytes(in.readInt()));
            case 'C':
                final byte[] name = in.readNBytes(in.readInt());
                return charset(new String(name, StandardCharsets.UTF_8), in.readNBytes(in.readInt()));
            case 'N':
                return charsets();
            default:
                throw new IllegalStateException("no such request: " + request);
        }
    }

    // Schemas

    private String schema(final byte[] text) throws Exception
    {
        ir = null;
        final boolean includes = new String(text, StandardCharsets.ISO_8859_1).contains("XInclude");
        final ParserOptions options =
            ParserOptions.builder().stopOnError(true).suppressOutput(true).xIncludeAware(includes).build();
        final InputSource source = new InputSource(new ByteArrayInputStream(text));
        ir = new IrGenerator().generate(XmlSchemaParser.parse(source, options));
        final StringBuilder ids = new StringBuilder();
        for (final List<Token> tokens : ir.messages())
        {
            sortDimensions(tokens);
            ids.append(ids.isEmpty() ? "" : ", ").append(tokens.get(0).id());
        }
        return "{\"messages\": [" + ids + "], \"version\": " + ir.version() + "}";
    }

    /** The decoder takes what is in front of a group by place, generated code takes it by name. */
    private static void sortDimensions(final List<Token> tokens)
    {
        for (int index = 0; index < tokens.size(); index++)
        {
            if (tokens.get(index).signal() == Signal.BEGIN_GROUP)
            {
                final String[] names = {"blockLength", "numInGroup"};
                for (int place = 0; place < names.length; place++)
                {
                    int at = index + 2;
                    while (!tokens.get(at).name().equals(names[place]))
                    {
                        at++;
                    }
                    tokens.add(index + 2 + place, tokens.remove(at));
                }
            }
        }
    }

    private static String charsets()
    {
        final List<String> names = new ArrayList<>();
        for (final Charset charset : Charset.availableCharsets().values())
        {
            names.add(quoted(charset.name()));
            charset.aliases().forEach((name) -> names.add(quoted(name)));
        }
        return names.toString();
    }

    private static String charset(final String name, final byte[] text)
    {
        return quoted(new String(text, Charset.forName(name)));
    }

    // Writing

    private String write(final int templateId, final int version, final int beyond, final long seed)
    {
        final Random random = new Random(seed);
        final ExpandableArrayBuffer buffer = new ExpandableArrayBuffer(1024);
        final List<Token> tokens = ir.getMessage(templateId);
        final OtfHeaderDecoder header = new OtfHeaderDecoder(ir.headerStructure());
        fill(random, buffer, 0, header.encodedLength());
        final int length = version < ir.version() ? blockLength(tokens, 1, version) : tokens.get(0).encodedLength();
        for (final Token token : ir.headerStructure().tokens())
        {
            switch (token.name())
            {
                case "blockLength" -> putChecked(buffer, token.offset(), token.encoding(), length + beyond);
                case "templateId" -> putChecked(buffer, token.offset(), token.encoding(), templateId);
                case "schemaId" -> putChecked(buffer, token.offset(), token.encoding(), ir.id());
                case "version" -> putChecked(buffer, token.offset(), token.encoding(), version);
                default -> { }
            }
        }
        final int end = body(random, buffer, header.encodedLength(), tokens, 1, version, length, beyond);
        final byte[] message = new byte[end];
        buffer.getBytes(0, message);
        return "\"" + HexFormat.of().formatHex(message) + "\"";
    }

    /** What the fields of a version of the schema take. */
    private static int blockLength(final List<Token> tokens, final int first, final int version)
    {
        int length = 0;
        for (int index = first; tokens.get(index).signal() == Signal.BEGIN_FIELD;)
        {
            final Token field = tokens.get(index);
            if (field.version() <= version && !field.isConstantEncoding())
            {
                length = Math.max(length, field.offset() + field.encodedLength());
            }
            index += field.componentTokenCount();
        }
        return length;
    }

    private int body(
        final Random random,
        final ExpandableArrayBuffer buffer,
        final int begin,
        final List<Token> tokens,
        final int first,
        final int version,
        final int length,
        final int beyond)
    {
        if (length > 100_000)
        {
            throw new IllegalStateException("does not fit: a block of " + length);
        }
        fill(random, buffer, begin, length + beyond);
        int at = begin + length + beyond;
        int index = first;
        while (index < tokens.size())
        {
            final Token token = tokens.get(index);
            final boolean isThere = token.version() <= version;
            if (token.signal() == Signal.BEGIN_FIELD)
            {
                if (isThere && !token.isConstantEncoding())
                {
                    value(random, buffer, begin, tokens, index + 1);
                }
            }
            else if (token.signal() == Signal.BEGIN_GROUP)
            {
                if (isThere)
                {
                    at = group(random, buffer, at, tokens, index, version, beyond);
                }
            }
            else if (token.signal() == Signal.BEGIN_VAR_DATA)
            {
                if (isThere)
                {
                    final Token content = tokens.get(index + 3);
                    final byte[] text = text(random, content.encoding().characterEncoding(), 20);
                    fill(random, buffer, at, content.offset());
                    put(buffer, at + tokens.get(index + 2).offset(), tokens.get(index + 2).encoding(), text.length);
                    buffer.putBytes(at + content.offset(), text);
                    at += content.offset() + text.length;
                }
            }
            else
            {
                break;
            }
            index += token.componentTokenCount();
        }
        return at;
    }

    private int group(
        final Random random,
        final ExpandableArrayBuffer buffer,
        final int begin,
        final List<Token> tokens,
        final int index,
        final int version,
        final int beyond)
    {
        final Token dimensions = tokens.get(index + 1);
        final int fields = index + 1 + dimensions.componentTokenCount();
        final int count = random.nextInt(3);
        final int length = version < ir.version() ?
            blockLength(tokens, fields, version) : tokens.get(index).encodedLength();
        fill(random, buffer, begin, dimensions.encodedLength());
        putChecked(buffer, begin + tokens.get(index + 2).offset(), tokens.get(index + 2).encoding(), length + beyond);
        put(buffer, begin + tokens.get(index + 3).offset(), tokens.get(index + 3).encoding(), count);
        int at = begin + dimensions.encodedLength();
        for (int entry = 0; entry < count; entry++)
        {
            at = body(random, buffer, at, tokens, fields, version, length, beyond);
        }
        return at;
    }

    private static void value(
        final Random random,
        final ExpandableArrayBuffer buffer,
        final int begin,
        final List<Token> tokens,
        final int index)
    {
        final Token token = tokens.get(index);
        final Encoding encoding = token.encoding();
        final int at = begin + token.offset();
        switch (token.signal())
        {
            case BEGIN_COMPOSITE ->
            {
                for (int part = index + 1; tokens.get(part).signal() != Signal.END_COMPOSITE;)
                {
                    value(random, buffer, at, tokens, part);
                    part += tokens.get(part).componentTokenCount();
                }
            }
            case BEGIN_ENUM ->
            {
                final int count = token.componentTokenCount() - 2;
                final int which = random.nextInt(count + 2);
                put(buffer, at, encoding, which < count ?
                    tokens.get(index + 1 + which).encoding().constValue().longValue() :
                    which == count ? encoding.applicableNullValue().longValue() : 0x40 + random.nextInt(0x30));
            }
            case ENCODING ->
            {
                if (encoding.primitiveType() == PrimitiveType.CHAR)
                {
                    final String name = encoding.characterEncoding();
                    final byte[] text = text(random, name == null ? "US-ASCII" : name, token.encodedLength());
                    buffer.setMemory(at, token.encodedLength(), (byte)0);
                    buffer.putBytes(at, text);
                }
                else
                {
                    for (int number = 0; number < token.arrayLength(); number++)
                    {
                        number(random, buffer, at + number * encoding.primitiveType().size(), encoding);
                    }
                }
            }
            default -> { } // a set has what is there
        }
    }

    private static void number(
        final Random random, final ExpandableArrayBuffer buffer, final int at, final Encoding encoding)
    {
        final PrimitiveType type = encoding.primitiveType();
        final int which = random.nextInt(5);
        if (type == PrimitiveType.FLOAT || type == PrimitiveType.DOUBLE)
        {
            final double none = encoding.applicableNullValue().doubleValue();
            final double[] values = {0.0, -1.5, 1e10, Double.NEGATIVE_INFINITY, none};
            if (type == PrimitiveType.FLOAT)
            {
                buffer.putFloat(at, (float)values[which], encoding.byteOrder());
            }
            else
            {
                buffer.putDouble(at, values[which], encoding.byteOrder());
            }
        }
        else if (which < 4)
        {
            final long[] values = {0, -1, random.nextLong(), encoding.applicableNullValue().longValue()};
            put(buffer, at, encoding, values[which]);
        }
    }

    private static byte[] text(final Random random, final String encoding, final int most)
    {
        if (isSupported(encoding) && Charset.forName(encoding).canEncode())
        {
            String text = TEXTS[random.nextInt(TEXTS.length)];
            while (text.getBytes(Charset.forName(encoding)).length > most)
            {
                text = text.substring(0, text.length() - 1);
                if (text.isEmpty())
                {
                    return new byte[0];
                }
            }
            return text.getBytes(Charset.forName(encoding));
        }
        final byte[] bytes = new byte[random.nextInt(most + 1)];
        random.nextBytes(bytes);
        return bytes;
    }

    private static void fill(final Random random, final ExpandableArrayBuffer buffer, final int at, final int length)
    {
        final byte[] bytes = new byte[length];
        random.nextBytes(bytes);
        buffer.putBytes(at, bytes);
    }

    private static void putChecked(
        final ExpandableArrayBuffer buffer, final int at, final Encoding encoding, final int value)
    {
        final PrimitiveType type = encoding.primitiveType();
        if (value < type.minValue().longValue() || value > type.maxValue().longValue())
        {
            throw new IllegalStateException("does not fit: " + value);
        }
        put(buffer, at, encoding, value);
    }

    private static void put(final ExpandableArrayBuffer buffer, final int at, final Encoding encoding, final long value)
    {
        final ByteOrder order = encoding.byteOrder();
        switch (encoding.primitiveType().size())
        {
            case 1 -> buffer.putByte(at, (byte)value);
            case 2 -> buffer.putShort(at, (short)value, order);
            case 4 -> buffer.putInt(at, (int)value, order);
            default -> buffer.putLong(at, value, order);
        }
    }

    // Reading

    private String read(final byte[] bytes)
    {
        // Parts of composites have no version, and are read where a message has none.
        final UnsafeBuffer buffer = new UnsafeBuffer(Arrays.copyOf(bytes, bytes.length + 100_000));
        final OtfHeaderDecoder header = new OtfHeaderDecoder(ir.headerStructure());
        final StringBuilder found = new StringBuilder("[");
        int at = 0;
        while (at < bytes.length)
        {
            final int templateId = header.getTemplateId(buffer, at);
            final Listener listener = new Listener();
            final int end = OtfMessageDecoder.decode(
                buffer,
                at + header.encodedLength(),
                header.getSchemaVersion(buffer, at),
                header.getBlockLength(buffer, at),
                ir.getMessage(templateId),
                listener);
            found.append(at == 0 ? "" : ", ").append("[").append(templateId).append(", ").append(end - at).append(", ");
            found.append(listener.out).append("]");
            at = end;
        }
        return found.append("]").toString();
    }

    /** Makes JSON: null for what is null; doubles by their bits; texts as their bytes, and what they say. */
    private static final class Listener implements TokenListener
    {
        final StringBuilder out = new StringBuilder();
        private int depth = 0;

        private void name(final String name)
        {
            final char last = out.charAt(out.length() - 1);
            out.append(last == '{' || last == '[' ? "" : ", ").append(quoted(name)).append(": ");
        }

        private void begin()
        {
            final boolean isNext = !out.isEmpty() && out.charAt(out.length() - 1) == '}';
            out.append(isNext ? ", {" : "{");
        }

        public void onBeginMessage(final Token token)
        {
            begin();
        }

        public void onEndMessage(final Token token)
        {
            out.append('}');
        }

        public void onEncoding(
            final Token field, final DirectBuffer buffer, final int at, final Token token, final int version)
        {
            name(depth > 0 ? token.name() : field.name());
            final Encoding encoding = token.encoding();
            final PrimitiveType type = encoding.primitiveType();
            if (token.isConstantEncoding())
            {
                constant(encoding);
            }
            else if (Math.max(field.version(), token.version()) > version)
            {
                out.append("null");
            }
            else if (type == PrimitiveType.CHAR)
            {
                characters(encoding, buffer, at, token.encodedLength());
            }
            else if (token.arrayLength() == 1)
            {
                number(encoding, buffer, at);
            }
            else
            {
                out.append('[');
                for (int index = 0; index < token.arrayLength(); index++)
                {
                    out.append(index > 0 ? ", " : "");
                    number(encoding, buffer, at + index * type.size());
                }
                out.append(']');
            }
        }

        private void constant(final Encoding encoding)
        {
            final PrimitiveValue value = encoding.constValue();
            if (encoding.primitiveType() == PrimitiveType.CHAR)
            {
                final String name = encoding.characterEncoding() == null ? "US-ASCII" : encoding.characterEncoding();
                final byte[] bytes = value.byteArrayValue(PrimitiveType.CHAR);
                final Charset charset = isSupported(name) ? Charset.forName(name) : StandardCharsets.US_ASCII;
                final String ascii = quoted(new String(bytes, StandardCharsets.US_ASCII));
                out.append("[[" + quoted(new String(bytes, charset)) + ", " + ascii + ", " + quoted(name) + "]]");
            }
            else if (value.representation() == PrimitiveValue.Representation.DOUBLE)
            {
                out.append("{\"bits\": ").append(Double.doubleToLongBits(value.doubleValue())).append('}');
            }
            else
            {
                out.append(whole(encoding.primitiveType(), value.longValue()));
            }
        }

        private void characters(final Encoding encoding, final DirectBuffer buffer, final int at, final int length)
        {
            int end = 0;
            while (end < length && buffer.getByte(at + end) != 0)
            {
                end++;
            }
            final boolean isOptional = encoding.presence() == Encoding.Presence.OPTIONAL;
            final long empty = length == 1 ? encoding.applicableNullValue().longValue() : 0;
            if (isOptional && (end == 0 ? empty == 0 : length == 1 && buffer.getByte(at) == empty))
            {
                out.append("null");
                return;
            }
            text(encoding.characterEncoding() == null ? "US-ASCII" : encoding.characterEncoding(), buffer, at, end);
        }

        private void text(final String encoding, final DirectBuffer buffer, final int at, final int length)
        {
            final byte[] bytes = new byte[length];
            buffer.getBytes(at, bytes);
            out.append('[').append(quoted(HexFormat.of().formatHex(bytes)));
            if (isSupported(encoding))
            {
                out.append(", ").append(quoted(new String(bytes, Charset.forName(encoding))));
            }
            out.append(']');
        }

        private void number(final Encoding encoding, final DirectBuffer buffer, final int at)
        {
            final boolean isOptional = encoding.presence() == Encoding.Presence.OPTIONAL;
            final PrimitiveType type = encoding.primitiveType();
            if (type == PrimitiveType.FLOAT || type == PrimitiveType.DOUBLE)
            {
                final double value = type == PrimitiveType.FLOAT ?
                    buffer.getFloat(at, encoding.byteOrder()) : buffer.getDouble(at, encoding.byteOrder());
                final long bits = Double.doubleToLongBits(value);
                final long none = Double.doubleToLongBits(encoding.applicableNullValue().doubleValue());
                out.append(isOptional && bits == none ? "null" : "{\"bits\": " + bits + "}");
                return;
            }
            final long value = Types.getLong(buffer, at, encoding);
            final boolean isNull = isOptional && value == encoding.applicableNullValue().longValue();
            out.append(isNull ? "null" : whole(type, value));
        }

        private static String whole(final PrimitiveType type, final long value)
        {
            return type == PrimitiveType.UINT64 ? Long.toUnsignedString(value) : Long.toString(value);
        }

        public void onEnum(
            final Token field,
            final DirectBuffer buffer,
            final int at,
            final List<Token> tokens,
            final int from,
            final int to,
            final int version)
        {
            final Token token = tokens.get(from);
            name(depth > 0 ? token.name() : field.name());
            if (field.isConstantEncoding())
            {
                final String value = field.encoding().constValue().toString();
                out.append("{\"name\": ").append(quoted(value.substring(value.indexOf('.') + 1))).append('}');
                return;
            }
            if (Math.max(field.version(), token.version()) > version)
            {
                out.append("null");
                return;
            }
            final long value = Types.getLong(buffer, at, tokens.get(from + 1).encoding());
            for (int index = from + 1; index < to; index++)
            {
                if (tokens.get(index).encoding().constValue().longValue() == value)
                {
                    out.append("{\"name\": ").append(quoted(tokens.get(index).name())).append('}');
                    return;
                }
            }
            final boolean isNull = value == token.encoding().applicableNullValue().longValue();
            out.append(isNull ? "null" : "{\"value\": " + whole(token.encoding().primitiveType(), value) + "}");
        }

        public void onBitSet(
            final Token field,
            final DirectBuffer buffer,
            final int at,
            final List<Token> tokens,
            final int from,
            final int to,
            final int version)
        {
            final Token token = tokens.get(from);
            name(depth > 0 ? token.name() : field.name());
            final boolean isThere = Math.max(field.version(), token.version()) <= version;
            final boolean isEmpty = to == from + 1;
            final long bits = isThere && !isEmpty ? Types.getLong(buffer, at, tokens.get(from + 1).encoding()) : 0;
            out.append('{');
            for (int index = from + 1; index < to; index++)
            {
                name(tokens.get(index).name());
                final boolean isSet = (bits & 1L << tokens.get(index).encoding().constValue().longValue()) != 0;
                out.append(isThere ? isSet : null);
            }
            out.append('}');
        }

        public void onBeginComposite(final Token field, final List<Token> tokens, final int from, final int to)
        {
            name(depth > 0 ? tokens.get(from).name() : field.name());
            depth++;
            out.append('{');
        }

        public void onEndComposite(final Token field, final List<Token> tokens, final int from, final int to)
        {
            depth--;
            out.append('}');
        }

        public void onGroupHeader(final Token token, final int count)
        {
            name(token.name());
            out.append(count > 0 ? "[" : "[]");
        }

        public void onBeginGroup(final Token token, final int index, final int count)
        {
            begin();
        }

        public void onEndGroup(final Token token, final int index, final int count)
        {
            out.append(index == count - 1 ? "}]" : "}");
        }

        public void onVarData(
            final Token field, final DirectBuffer buffer, final int at, final int length, final Token token)
        {
            name(field.name());
            text(token.encoding().characterEncoding(), buffer, at, length);
        }
    }

    private static boolean isSupported(final String charset)
    {
        return charset != null && charset.matches("[A-Za-z0-9][A-Za-z0-9+.:_-]*") && Charset.isSupported(charset);
    }

    private static String quoted(final String text)
    {
        final StringBuilder out = new StringBuilder("\"");
        for (int index = 0; index < text.length(); index++)
        {
            final char one = text.charAt(index);
            final boolean isPlain = one >= 0x20 && one < 0x7f && one != '"' && one != '\\';
            out.append(isPlain ? one : String.format("\\u%04x", (int)one));
        }
        return out.append('"').toString();
    }
}

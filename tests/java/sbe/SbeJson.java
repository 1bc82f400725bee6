// Prints SBE messages as JSON, by Real Logic's own decoder; arguments are a schema, and a file of messages, each with
// its length in front as four bytes.
package container.tests.sbe;

import java.io.DataInputStream;
import java.io.EOFException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import org.xml.sax.InputSource;
import uk.co.real_logic.sbe.ir.Ir;
import uk.co.real_logic.sbe.json.JsonPrinter;
import uk.co.real_logic.sbe.xml.IrGenerator;
import uk.co.real_logic.sbe.xml.MessageSchema;
import uk.co.real_logic.sbe.xml.ParserOptions;
import uk.co.real_logic.sbe.xml.XmlSchemaParser;

/** Prints messages as JSON. */
public final class SbeJson
{
    private SbeJson()
    {
    }

    /** Prints a line for each message. */
    public static void main(final String[] arguments) throws Exception
    {
        final MessageSchema schema =
            XmlSchemaParser.parse(
                new InputSource(Path.of(arguments[0]).toUri().toString()),
                ParserOptions.builder().xIncludeAware(true).stopOnError(true).build());
        final Ir ir = new IrGenerator().generate(schema);
        final JsonPrinter printer = new JsonPrinter(ir);
        try (DataInputStream in = new DataInputStream(Files.newInputStream(Path.of(arguments[1]))))
        {
            while (true)
            {
                final byte[] message;
                try
                {
                    message = new byte[in.readInt()];
                }
                catch (final EOFException end)
                {
                    return;
                }
                in.readFully(message);
                System.out.println(printer.print(ByteBuffer.wrap(message)).replace("\n", " "));
            }
        }
    }
}

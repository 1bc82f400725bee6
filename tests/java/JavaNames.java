// Prints the names of Aeron that docs/from-java.md has, each behind its kind; or what java.util.Properties reads.
package container.tests;

import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Collections;
import java.util.Map;
import java.util.Properties;
import java.util.jar.JarEntry;
import java.util.jar.JarFile;

/**
 * Takes the path of Aeron's jar, and of a file of properties, which it prints in hexadecimal digits of its characters.
 */
public final class JavaNames
{
    private static final String[] CONTEXTS = {
        "io.aeron.Aeron$Context", "io.aeron.driver.MediaDriver$Context", "io.aeron.archive.Archive$Context",
        "io.aeron.archive.client.AeronArchive$Context", "io.aeron.cluster.ConsensusModule$Context",
        "io.aeron.cluster.service.ClusteredServiceContainer$Context", "io.aeron.cluster.client.AeronCluster$Context",
        "io.aeron.cluster.ClusterBackup$Context" };

    public static void main(final String[] args) throws Exception
    {
        if (args.length == 2)
        {
            printProperties(Path.of(args[1]));
            return;
        }
        for (final String name : CONTEXTS)
        {
            final Class<?> context = load(name);
            for (final Method method : context.getDeclaredMethods())
            {
                if (Modifier.isPublic(method.getModifiers()) && method.getParameterCount() == 1 &&
                    method.getReturnType() == context)
                {
                    System.out.println("context " + name + " " + method.getName());
                }
            }
        }
        final Field commands = load("io.aeron.cluster.ClusterTool").getDeclaredField("COMMANDS");
        commands.setAccessible(true);
        for (final Object word : ((Map<?, ?>)commands.get(null)).keySet())
        {
            System.out.println("word ClusterTool " + word);
        }
        try (JarFile jar = new JarFile(args[0]))
        {
            for (final JarEntry entry : Collections.list(jar.entries()))
            {
                final String name = entry.getName();
                if (name.startsWith("io/aeron/") && name.endsWith(".class") && !name.contains("/shadow/") &&
                    !name.contains("/samples/"))
                {
                    print(load(name.substring(0, name.length() - ".class".length()).replace('/', '.')));
                }
            }
        }
    }

    private static Class<?> load(final String name) throws ClassNotFoundException
    {
        return Class.forName(name, false, JavaNames.class.getClassLoader());
    }

    private static void print(final Class<?> type) throws IllegalAccessException
    {
        if (Throwable.class.isAssignableFrom(type))
        {
            System.out.println("exception " + type.getName());
        }
        for (final Field field : type.getDeclaredFields())
        {
            final boolean isProperty = field.getName().endsWith("_PROP_NAME") && field.getType() == String.class;
            final boolean isCounter = field.getName().endsWith("_TYPE_ID") && field.getType() == int.class &&
                type.getName().equals("io.aeron.AeronCounters");
            if (Modifier.isStatic(field.getModifiers()) && (isProperty || isCounter))
            {
                field.setAccessible(true);
                System.out.println(isProperty ?
                    "property " + field.get(null) : "counter " + field.getName() + " " + field.get(null));
            }
        }
    }

    private static void printProperties(final Path path) throws Exception
    {
        final Properties properties = new Properties();
        try (InputStream input = Files.newInputStream(path))
        {
            properties.load(input);
        }
        for (final String name : properties.stringPropertyNames())
        {
            System.out.println(hex(name) + "=" + hex(properties.getProperty(name)));
        }
    }

    private static String hex(final String text)
    {
        final StringBuilder found = new StringBuilder();
        text.chars().forEach((unit) -> found.append(String.format("%04x", unit)));
        return found.toString();
    }
}

package dreamstream;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStream;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Locale;

/**
 * Finds and loads the native library, once per process. The first of these places is used:
 *
 * <ol>
 *   <li>the file, or the folder with {@code libdreamstream_jni.so}, that the property
 *       {@code dreamstream.library.path} names;
 *   <li>the jar, whose libraries are unpacked into a temporary folder that is gone when they are loaded; not with
 *       {@code -Ddreamstream.extract=false};
 *   <li>{@code java.library.path}.
 * </ol>
 */
final class Loader {
    private static boolean loaded;

    private Loader() {}

    /** Throws UnsatisfiedLinkError, which says what was tried, where there is none, or where it is another's. */
    static synchronized void load() {
        if (loaded) {
            return;
        }
        String explicit = System.getProperty("dreamstream.library.path");
        if (explicit != null) {
            Path path = Path.of(explicit).toAbsolutePath();
            System.load((Files.isDirectory(path) ? path.resolve(System.mapLibraryName("dreamstream_jni")) : path).toString());
        } else if (!Boolean.parseBoolean(System.getProperty("dreamstream.extract", "true")) || !loadFromJar()) {
            System.loadLibrary("dreamstream_jni");
        }
        check(Native.versions());
        loaded = true;
    }

    static void check(long[] versions) {
        if (versions[0] != Native.METHODS_VERSION) {
            throw new UnsatisfiedLinkError("libdreamstream_jni is of another version (" + versions[0]
                    + ") than the classes of dreamstream.jar (" + Native.METHODS_VERSION + ")");
        }
        if (versions[2] < versions[1]) {
            throw new UnsatisfiedLinkError("libdreamstream has the binary interface " + versions[2]
                    + ", older than the one that libdreamstream_jni was compiled for (" + versions[1] + ")");
        }
    }

    private static String platform() {
        String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
        String arch = System.getProperty("os.arch");
        return (os.startsWith("mac") ? "macos" : os) + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    }

    /** Returns false where the jar has nothing for this system. */
    private static boolean loadFromJar() {
        String folder = "native/" + platform() + "/";
        Path place = null;
        List<Path> made = new ArrayList<>();
        try (InputStream index = Loader.class.getResourceAsStream(folder + "files")) {
            if (index == null) {
                return false;
            }
            place = Files.createTempDirectory("dreamstream");
            Path library = null;
            BufferedReader lines = new BufferedReader(new InputStreamReader(index, StandardCharsets.UTF_8));
            for (String name = lines.readLine(); name != null; name = lines.readLine()) {
                library = unpack(folder + name, place.resolve(name), made);
            }
            System.load(library.toString()); // the last of the list, which finds the others beside it
            return true;
        } catch (IOException error) {
            throw (UnsatisfiedLinkError)
                    new UnsatisfiedLinkError("the libraries of dreamstream.jar can't be unpacked: " + error).initCause(error);
        } finally {
            remove(place, made);
        }
    }

    private static Path unpack(String resource, Path target, List<Path> made) throws IOException {
        if (!Files.isDirectory(target.getParent())) {
            Files.createDirectory(target.getParent());
            made.add(0, target.getParent());
        }
        made.add(0, target);
        try (InputStream from = Loader.class.getResourceAsStream(resource)) {
            if (from == null) {
                throw new IOException("the jar lacks " + resource);
            }
            Files.copy(from, target);
        }
        return target;
    }

    private static void remove(Path place, List<Path> made) {
        try {
            for (Path path : made) {
                Files.deleteIfExists(path);
            }
            if (place != null) {
                Files.deleteIfExists(place);
            }
        } catch (IOException left) {
            // A system that doesn't delete libraries in use keeps them in its folder for temporary files.
        }
    }
}

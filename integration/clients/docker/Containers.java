import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/** Uses testcontainers for Java in a sandbox with a Docker socket: see integration/docker.sh. */
public class Containers {
    public static void main(String[] args) throws Exception {
        try (var web = new GenericContainer<>(DockerImageName.parse("local/bb"))) {
            web.withExposedPorts(80)
                .withCopyToContainer(Transferable.of("hello"), "/w/index.html")
                .withCommand("sh", "-c", "echo ready; exec httpd -f -p 80 -h /w")
                .waitingFor(Wait.forHttp("/"))
                .start();
            var at = URI.create("http://" + web.getHost() + ":" + web.getMappedPort(80) + "/");
            System.out.println(HttpClient.newHttpClient().send(HttpRequest.newBuilder(at).build(), HttpResponse.BodyHandlers.ofString()).body());
            System.out.print(web.execInContainer("echo", "in").getStdout());
        }
    }
}

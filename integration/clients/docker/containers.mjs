// Uses testcontainers for Node in a sandbox with a Docker socket: see integration/docker.sh.
import { GenericContainer, Network, Wait } from "testcontainers";
const net = await new Network().start();
const web = await new GenericContainer("local/bb").withNetwork(net).withNetworkAliases("web").withExposedPorts(80)
  .withCopyContentToContainer([{ content: "hello", target: "/w/index.html" }])
  .withCommand(["sh", "-c", "echo ready; exec httpd -f -p 80 -h /w"]).withWaitStrategy(Wait.forHttp("/", 80)).start();
console.log(await (await fetch(`http://${web.getHost()}:${web.getMappedPort(80)}/`)).text());
console.log((await web.exec(["echo", "in"])).output.trim());
const once = await new GenericContainer("local/bb").withNetwork(net).withCommand(["sh", "-c", "wget -qO- http://web/ | grep hello"])
  .withWaitStrategy(Wait.forOneShotStartup()).start();
await once.stop();
await web.stop();
await net.stop();

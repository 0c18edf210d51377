"""Uses testcontainers for Python in a sandbox with a Docker socket: see integration/docker.sh."""

import urllib.request

from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network
from testcontainers.core.wait_strategies import LogMessageWaitStrategy

serve = "sh -c 'mkdir /w; echo -n hello >/w/index.html; echo ready; exec httpd -f -p 80 -h /w'"
with Network() as net:
    web = DockerContainer("local/bb").with_command(serve).with_exposed_ports(80).with_network(net).with_network_aliases("web")
    with web.waiting_for(LogMessageWaitStrategy("ready")):
        with urllib.request.urlopen(f"http://{web.get_container_host_ip()}:{web.get_exposed_port(80)}/") as page:
            print(page.read().decode())
        print(web.exec(["echo", "in"]).output.decode().strip())
        once = DockerContainer("local/bb").with_command("wget -qO- http://web/").with_network(net)
        with once:
            assert once.get_wrapped_container().wait()["StatusCode"] == 0
            assert once.get_logs()[0] == b"hello", once.get_logs()

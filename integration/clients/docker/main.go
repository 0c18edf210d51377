// Command docker uses testcontainers for Go in a sandbox with a Docker socket: see integration/docker.sh.
package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	tc "github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/network"
	"github.com/testcontainers/testcontainers-go/wait"
)

func check(err error) {
	if err != nil {
		fmt.Println("FAIL", err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	net, err := network.New(ctx)
	check(err)
	web, err := tc.Run(ctx, "local/bb", tc.WithExposedPorts("80/tcp"), network.WithNetwork([]string{"web"}, net),
		tc.WithFiles(tc.ContainerFile{Reader: strings.NewReader("hello"), ContainerFilePath: "/w/index.html", FileMode: 0o644}),
		tc.WithCmd("sh", "-c", "echo ready; exec httpd -f -p 80 -h /w"), tc.WithWaitStrategy(wait.ForAll(wait.ForLog("ready"), wait.ForHTTP("/"), wait.ForListeningPort("80/tcp"))))
	check(err)
	at, err := web.Endpoint(ctx, "http")
	check(err)
	r, err := http.Get(at)
	check(err)
	body, err := io.ReadAll(r.Body)
	check(err)
	fmt.Println(string(body))
	code, out, err := web.Exec(ctx, []string{"echo", "in"})
	check(err)
	text, _ := io.ReadAll(out)
	fmt.Printf("%d %q\n", code, text)
	once, err := tc.Run(ctx, "local/bb", network.WithNetwork(nil, net), tc.WithCmd("wget", "-qO-", "http://web/"), tc.WithWaitStrategy(wait.ForExit()))
	check(err)
	logs, err := once.Logs(ctx)
	check(err)
	text, err = io.ReadAll(logs)
	check(err)
	fmt.Printf("%q\n", text)
	check(tc.TerminateContainer(once))
	check(tc.TerminateContainer(web))
	check(net.Remove(ctx))
}

// Package program is the server of demesne serve: its callers, its listener and its APIs.
package program

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/go-systemd/v22/daemon"

	"demesne/internal/text"
	"demesne/server"
	"demesne/server/page"
	"demesne/server/serve/settings"
	"demesne/server/servecmd"
)

// Serve answers clients until ctx ends.
func Serve(ctx context.Context, o *servecmd.Options, out, errs io.Writer) error {
	dir, err := settings.StateDir()
	if err != nil {
		return err
	}
	access, err := settings.Callers(o, dir)
	if err != nil {
		return err
	}
	secure, keep, err := settings.Certificate(o, dir)
	if err != nil {
		return err
	}
	addr := cmp.Or(o.HTTP, servecmd.DefaultAddress)
	if o.Page {
		_, err := fmt.Fprintf(out, "%s://%s%s#token=%s\n", scheme(secure), addr, page.Root, url.QueryEscape(access.Token))
		return err
	}
	if o.Env {
		return printEnv(out, access.Token, scheme(secure)+"://"+addr)
	}
	lock, err := settings.Lock(dir)
	if err != nil {
		return err
	}
	defer lock.Close()
	p := &program{options: o, state: dir, access: access, mux: &router{ServeMux: http.NewServeMux()}, log: log.New(errs, "demesne: serve: ", 0)}
	if err := p.openOperate(ctx); err != nil {
		return err
	}
	defer p.operate.Close()
	if err := p.openBackends(); err != nil {
		return err
	}
	defer p.backend.Close()
	if p.mine, err = p.backend.Of(""); err != nil {
		return err
	}
	l, err := server.Listen(addr, o.Exposed)
	if errors.Is(err, server.ErrExposed) {
		err = text.Hinted(err, "--exposed allows it")
	}
	if err != nil {
		return err
	}
	defer l.Close()
	if o.Linger > 0 {
		l, ctx = server.Lingering(ctx, l, o.Linger)
	}
	p.domain = o.Domain
	if at, ok := l.Addr().(*net.TCPAddr); ok && p.domain == "" {
		p.domain = "localhost:" + strconv.Itoa(at.Port)
	}
	if err := p.open(ctx); err != nil {
		return err
	}
	defer p.close()
	// For a unit of type notify. No program that the server starts may answer for it, so the variable is removed first.
	if _, err := daemon.SdNotify(true, daemon.SdNotifyReady); err != nil {
		p.log.Printf("notify service manager: %v", err)
	}
	go p.mine.Connect(ctx)
	fmt.Fprintf(errs, "demesne: serve: listening on %s\n", strings.Replace(l.Addr().Network()+":"+l.Addr().String(), "tcp:", scheme(secure)+"://", 1))
	if keep != nil {
		keep(ctx, p.log)
	}
	guard := server.Guard{Hosts: slices.Concat(o.Hosts, o.ACME), Domain: p.domain, Origins: o.Origins}
	return server.Serve(ctx, l, p.operate.Handler(guard.Handler(p)), secure, p.log)
}

func scheme(secure *tls.Config) string {
	if secure != nil {
		return "https"
	}
	return "http"
}

// printEnv prints the variables for E2B's SDKs.
func printEnv(out io.Writer, token, url string) error {
	_, err := fmt.Fprintf(out, "export E2B_API_KEY=%s\nexport E2B_API_URL=%s\nexport E2B_SANDBOX_URL=%s\nexport E2B_VOLUME_API_URL=%s\n", token, url, url, url)
	return err
}

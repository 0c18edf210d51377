package agents

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"demesne/internal/lazy"
	"demesne/runner"
)

var (
	rowName    = lazy.Regexp{Expr: `^[a-z0-9]+(-[a-z0-9]+)*$`}
	allowed    = lazy.Regexp{Expr: `^(GET|POST) /\S+$`}
	headerName = lazy.Regexp{Expr: `^[A-Za-z0-9-]+$`}
	baseURL    = lazy.Regexp{Expr: `^https?://[^/?#\s]+(/[^?#\s]*)?$`}
)

// ownPort is the port of the interface for rows that name none. A sandbox has one agent, so rows may share it.
const ownPort = 8083

// fill sets the fields that a user's row may leave out.
func (p *Provider) fill() {
	if p.API.Port == 0 {
		p.API.Port = ownPort
	}
	if len(p.Interactive) == 0 {
		p.Interactive = []string{"{args}"}
	}
}

// check reports what is wrong with a user's row. Others are the rows that it must not collide with.
func (p *Provider) check(others []Provider) error {
	switch {
	case !rowName.Get().MatchString(p.Name):
		return errors.New("name must be lowercase letters, digits and interior hyphens")
	case p.Command == "" || strings.ContainsAny(p.Command, "/ "):
		return errors.New("command must be the name of a program")
	case len(p.Models) == 0:
		return errors.New("models must have at least one name")
	case !slices.Contains(p.Headless, "{prompt}"):
		return errors.New("headless must contain {prompt}")
	case len(p.Resume) > 0 && !slices.Contains(p.Resume, "{session}"):
		return errors.New("resume must contain {session}")
	case formats()[p.Format] == nil:
		return fmt.Errorf("format %q: not one of %s", p.Format, strings.Join(formatNames(), ", "))
	case p.Context == "" || filepath.Base(p.Context) != p.Context:
		return errors.New("context must be the name of a file")
	case len(p.Credentials) == 0:
		return errors.New("credentials must have at least one entry")
	case p.Tools.File != "" && p.Tools.Format != "json" && p.Tools.Format != "toml":
		return errors.New(`tools.format must be "json" or "toml"`)
	}
	for _, o := range others {
		if o.Name == p.Name || o.Command == p.Command {
			return fmt.Errorf("another agent has the name %q or the command %q", p.Name, p.Command)
		}
		for _, m := range p.Models {
			if _, taken := o.owns(m); taken {
				return fmt.Errorf("model %q belongs to agent %q", m, o.Name)
			}
		}
	}
	for _, price := range p.Prices {
		if err := price.check(); err != nil {
			return err
		}
	}
	return errors.Join(p.API.check(), checkFiles("config", p.Config), checkFiles("home", p.Home), p.Settings.check(), p.checkCredentials())
}

func (a API) check() error {
	if a.Port < 8000 || a.Port > messagesPort || a.Port == goProxyPort {
		return errors.New("api.port must be from 8000 to 8088, without 8087")
	}
	if a.Usage != "" && !slices.Contains(runner.Usages, a.Usage) {
		return fmt.Errorf("api.usage %q: not one of %s", a.Usage, strings.Join(runner.Usages, ", "))
	}
	if len(a.Allow) == 0 {
		return errors.New("api.allow must have at least one request")
	}
	for _, r := range a.Allow {
		if !allowed.Get().MatchString(r) {
			return fmt.Errorf("api.allow %q: not METHOD /path", r)
		}
	}
	return nil
}

func checkFiles(field string, files map[string]string) error {
	for name := range files {
		if !filepath.IsLocal(name) {
			return fmt.Errorf("%s %q: not a path below its directory", field, name)
		}
	}
	return nil
}

func (p *Provider) checkCredentials() error {
	for i, c := range p.Credentials {
		switch {
		case !baseURL.Get().MatchString(c.Base):
			return fmt.Errorf("credentials[%d].base %q: not an http or https URL", i, c.Base)
		case !headerName.Get().MatchString(c.Header):
			return fmt.Errorf("credentials[%d].header %q: not the name of a header", i, c.Header)
		case (c.Env == "") == (c.File == "" && c.FileEnv == ""):
			return fmt.Errorf("credentials[%d] needs either env or file", i)
		case c.Env == "" && !slices.Contains([]string{"codex", "claude-login", "text"}, c.Kind):
			return fmt.Errorf("credentials[%d].kind %q: not one of codex, claude-login, text", i, c.Kind)
		}
	}
	return nil
}

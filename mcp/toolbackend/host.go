package toolbackend

import (
	"errors"
	"fmt"
	"slices"

	"demesne/internal/text"
	"demesne/mcp"
	"demesne/mcp/toolbackend/sandboxes"
	"demesne/server/hostcmd/hostaccess"
)

// varHostPolicy names the operator's policy of host commands. [hostOff] turns them off, whatever else is set.
const (
	varHostPolicy = "DEMESNE_HOST_POLICY"
	hostOff       = "none"
)

// HostOptions completes the options of host access by what MCP tools know: places with credentials, and hints.
func HostOptions(o hostaccess.Options) hostaccess.Options {
	o.Credential, o.Explain = mcp.Credential, sandboxes.Attached
	return o
}

// offerHost gives an MCP server the guard of host commands, if the operator turned them on. done closes what it opened.
func (f *Backend) offerHost(o *mcp.Options) (done func(), err error) {
	o.Namespace = f.options.Namespace
	wanted := slices.Contains(o.Sets, setHost)
	switch {
	case f.options.Host != nil:
		if o.Host = f.options.Host; !wanted {
			o.Sets = append(o.Sets, setHost)
		}
	case wanted && f.options.Listed: // a server of several callers
		return nil, text.Hinted(errors.New("tools: host: needs a policy"), "demesne serve --host-policy FILE")
	case wanted:
		path := f.options.setting(varHostPolicy)
		if path == hostOff {
			return nil, errors.New("tools: host: the tool set host is not offered here")
		}
		if o.Host, done, err = hostaccess.OpenAudited(HostOptions(hostaccess.Options{Policy: path})); err != nil {
			return nil, fmt.Errorf("tools: host: %w", err)
		}
		return done, nil
	}
	return func() {}, nil
}

// setHost is the tool set of host commands.
const setHost = "host"

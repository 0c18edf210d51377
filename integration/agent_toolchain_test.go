package integration

import (
	"os"
	"strings"
	"testing"
)

// TestAgentToolchain checks what --toolchain shows of each version manager below $HOME: its programs come first in PATH, at
// their own paths and read-only, and a credential beside them stays outside.
func TestAgentToolchain(t *testing.T) {
	b, _, proj := newScriptBox(t)
	for _, path := range []string{".nvm/versions/node/v9.11.2/bin/node", ".nvm/versions/node/v20.1.0/bin/node", ".pyenv/shims/python3", ".pyenv/bin/pyenv",
		".local/bin/uv", ".local/bin/other", ".local/share/uv/python/cpython-3.13/bin/python", ".cargo/bin/cargo", ".rustup/toolchains/x/bin/rustc",
		"sdk/go1.9/bin/go", "sdk/go1.25.1/bin/go"} {
		b.file("h/"+path, "#!/bin/sh\necho $0\n", 0o755)
	}
	b.file("h/.cargo/credentials.toml", "secret", 0o600)
	h := b.home
	for _, c := range []struct{ names, script, want string }{
		{"nvm", "node; echo $NVM_DIR", h + "/.nvm/versions/node/v20.1.0/bin/node " + h + "/.nvm"},
		{"pyenv", "python3; pyenv; echo $PYENV_ROOT; touch $PYENV_ROOT/x 2>/dev/null || echo read-only", h + "/.pyenv/shims/python3 " + h + "/.pyenv/bin/pyenv " + h + "/.pyenv read-only"},
		{"uv", "uv; $UV_PYTHON_INSTALL_DIR/*/bin/python; ls " + h + "/.local/bin", h + "/.local/bin/uv " + h + "/.local/share/uv/python/cpython-3.13/bin/python uv"},
		{"rustup go", "cargo; go; echo $RUSTUP_HOME; ls -A " + h + "/.cargo", h + "/.cargo/bin/cargo " + h + "/sdk/go1.25.1/bin/go " + h + "/.rustup bin"},
		{"", "echo $PATH | grep -c " + h + "/.nvm; ls -A " + h, "0 proj"},
	} {
		var args []string
		for name := range strings.FieldsSeq(c.names) {
			args = append(args, "--toolchain", name)
		}
		if r := b.works(proj, append(args, c.script)...); strings.Join(strings.Fields(r.stdout), " ") != c.want {
			t.Errorf("%q: %q, want %q", c.names, r.stdout, c.want)
		}
	}
	// The version in the caller's PATH wins over the last one.
	for i, kv := range b.extra {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			b.extra[i] = "PATH=/usr/bin:" + h + "/.nvm/versions/node/v9.11.2/bin:" + path
		}
	}
	if r := b.works(proj, "--toolchain", "nvm", "node; PATH=$PATH sh -c node"); strings.Count(r.stdout, "v9.11.2") != 2 {
		t.Errorf("with a version in PATH: %+v", r)
	}
	os.RemoveAll(h + "/.pyenv")
	for name, want := range map[string]string{"pyenv": "your home directory has no .pyenv", "conda": "unknown (known: nvm, pyenv, uv, rustup, go)"} {
		if r := b.agentIn(proj, "--toolchain", name, "true"); r.code == 0 || !strings.Contains(r.stderr, want) {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

package release

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const sumsName = "SHA256SUMS"

// finish adds install.sh, writes the sums of all files, and signs them where there is a key.
func (o *Options) finish(id identity, files []string) (more []string, err error) {
	script, err := os.ReadFile(filepath.Join(o.Source, "integration/release/files/install.sh"))
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(o.Out, "install.sh"), script, 0o755); err != nil {
		return nil, err
	}
	var sums strings.Builder
	for _, name := range slices.Sorted(slices.Values(append([]string{"install.sh"}, files...))) {
		content, err := os.ReadFile(filepath.Join(o.Out, name))
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&sums, "%x  %s\n", sha256.Sum256(content), name)
	}
	path := filepath.Join(o.Out, sumsName)
	if err := os.WriteFile(path, []byte(sums.String()), 0o644); err != nil {
		return nil, err
	}
	if o.Key == "" {
		return []string{"install.sh", sumsName}, nil
	}
	cmd := exec.Command("minisign", "-S", "-s", o.Key, "-m", path, "-x", path+".minisig", "-t", strings.TrimSpace("demesne "+id.version+" "+id.commit))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stderr, os.Stderr // it asks for the key's password
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("sign %s: minisign: %w", sumsName, err)
	}
	return []string{"install.sh", sumsName, sumsName + ".minisig"}, nil
}

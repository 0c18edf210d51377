package fsutil

import (
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// credentials lists where programs keep credentials, sessions and histories in a home directory. The last name may end in *.
var credentials = []string{
	".ssh", ".gnupg", ".pki", ".password-store", ".local/share/keyrings", ".local/share/kwalletd", ".netrc", ".authinfo*", ".git-credentials", ".config/git/credentials",
	".aws", ".azure", ".boto", ".s3cfg", ".oci", ".config/gcloud", ".config/doctl", ".config/hcloud", ".fly", ".config/rclone", ".rclone.conf", ".databrickscfg",
	".kube", ".docker", ".config/containers", ".terraform.d", ".terraformrc", ".vault-token", ".config/op", ".config/sops", ".config/age",
	".config/gh", ".config/hub", ".config/glab-cli", ".npmrc", ".yarnrc*", ".pypirc", ".config/pip", ".cargo/credentials*", ".gem/credentials", ".bundle/config",
	".composer/auth.json", ".m2/settings*", ".gradle/gradle.properties", ".nuget/NuGet", ".pgpass", ".my.cnf", ".mylogin.cnf",
	".claude*", ".codex", ".gemini", ".config/claude*", ".config/github-copilot", ".cursor", ".config/Cursor", ".config/Claude", ".config/Code", ".demesne", ".config/demesne",
	".mozilla", ".thunderbird", ".config/google-chrome*", ".config/chromium", ".config/BraveSoftware", ".config/microsoft-edge*", ".config/vivaldi", ".config/opera",
	".config/Slack", ".config/discord", ".config/Signal", "snap", ".var/app",
	".bash_history", ".zsh_history", ".local/share/fish", ".python_history", ".psql_history", ".mysql_history", ".node_repl_history", ".viminfo", ".lesshst",
}

// inCheckout has the names of credentials that projects have too, each with the name below which is a credential.
func inCheckout() map[string]string {
	return map[string]string{
		".npmrc": "", ".yarnrc*": "", ".bundle/config": "", ".gradle/gradle.properties": "", "snap": "", ".demesne": "", ".config/demesne": "",
		".claude*": ".claude/.credentials.json", ".codex": ".codex/auth.json", ".gemini": ".gemini/oauth_creds.json", ".cursor": ".cursor/auth.json",
	}
}

// tokenWords are words of a package manager's settings that have a token or a password.
var tokenWords = []string{"_auth", "_password", "npmAuth"}

// CredentialsIn returns the existing places in a home directory where programs keep credentials, sessions and histories.
// With checkout set, the directory is also a project's, and places that projects have are returned only if they have a token.
func CredentialsIn(home string, checkout bool) (paths []string) {
	projects := inCheckout()
	for _, name := range credentials {
		below, project := projects[name]
		for _, path := range startingWith(filepath.Join(home, name)) {
			if !checkout || !project || hasToken(path) {
				paths = append(paths, path)
			}
		}
		if path := filepath.Join(home, below); checkout && below != "" && Exists(path) {
			paths = append(paths, path)
		}
	}
	return paths
}

// startingWith returns the path if it exists, or the existing paths that it names with a star at its end. Unlike
// [filepath.Glob], it does not treat the directory as a pattern.
func startingWith(path string) (paths []string) {
	prefix, star := strings.CutSuffix(path, "*")
	if !star {
		if _, err := os.Lstat(path); err == nil {
			paths = append(paths, path)
		}
		return paths
	}
	entries, _ := os.ReadDir(filepath.Dir(prefix))
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(prefix)) {
			paths = append(paths, filepath.Join(filepath.Dir(prefix), e.Name()))
		}
	}
	return paths
}

// hasToken reports whether a file has one of tokenWords.
func hasToken(path string) bool {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return false
	}
	f, err := os.Open(path)
	if err != nil {
		return true
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, 1<<20))
	for _, word := range tokenWords {
		if bytes.Contains(text, []byte(word)) {
			return true
		}
	}
	return err != nil
}

package hostcmd

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// TestWide checks which patterns are refused because they allow any command, and that the same are patterns of refusals.
func TestWide(t *testing.T) {
	for _, line := range []string{
		"make *", "make **", "awk *", "gawk *", "sed *", "sed -e *", "dd *", "find *", "find /srv -exec *", "tar *", "git *", "git -c *", "npx *", "npm *", "docker *", "vim *", "vi **", "less *", "socat **", "crontab *",
		"python *", "python3.11 *", "/usr/bin/python3 *", "perl5.36 *", "lua5.4 -e *", "php8.2 *", "bash -c *", "sh x*", "make -f *", "awk -F , *", "git -C /srv/site *", "tar -f x *", "tar --to-command *",
		"sudo *", "sudo -u root *", "sudo -n *", "sudo -u root -- *", "sudo bash *", "sudo -u web bash -c *", "sudo sudo *", "sudo env A=1 *", "env A=1 B=2 *", "env -i *", "timeout 5 *", "timeout -s KILL 5 *", "timeout * ls",
		"nice -n 5 *", "nice -n 5 make *", "nohup *", "xargs *", "xargs -n 1 sh -c *", "flock /l *", "flock -n /l sh *", "chroot /srv *", "ssh host *", "ssh -p 22 host *", "ssh * uptime", "watch -n 1 *", "strace -o f *",
		"docker run *", "docker run alpine *", "docker exec web *", "docker exec -u root web *", "docker exec web sh *", "docker container exec web *", "docker compose exec web **", "podman run *", "kubectl exec pod -- *", "kubectl run *",
		"busybox *", "busybox sh *", "git bisect run *", "git submodule foreach *", "npm exec *", "go run *", "uv run *", "su web *", "systemd-run *", "tmux new *", "sudo docker exec web *", "sudo timeout 5 docker run alpine *",
	} {
		words := strings.Fields(line)
		if _, err := ParsePattern(words); !errors.Is(err, errWide) {
			t.Errorf("%s: %v", line, err)
		}
		if _, err := parseDenied(words); err != nil {
			t.Errorf("deny %s: %v", line, err)
		}
	}
	for _, line := range []string{
		"docker restart *", "docker logs *", "docker restart **", "sudo systemctl restart *", "sudo -n systemctl restart *", "sudo -u web systemctl restart *", "systemctl restart *", "journalctl --unit=*",
		"python3 /srv/x.py *", "make test", "git status", "git -C /srv/site checkout main", "git checkout *", "git commit --message=*", "timeout 5 systemctl restart *", "ssh host systemctl restart *", "docker exec web nginx",
		"cat *", "echo **", "find /srv/logs *", "sed s/a/b/ *", "tar tf *", "kubectl get *", "apt-get install *", "env A=1 cat *", "make", "sudo", "docker exec",
	} {
		if _, err := ParsePattern(strings.Fields(line)); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if _, err := ParsePattern(slices.Repeat([]string{"sudo", "-u"}, maxWords/2)); err != nil { // each of its readings is looked at once
		t.Error(err)
	}
}

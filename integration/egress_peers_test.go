package integration

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestEgressGitSSH checks git over ssh and git://, which ignore proxies and connect to the name's address. git
// checks the host key, so the answer comes from the right server.
func TestEgressGitSSH(t *testing.T) {
	onInternet(t, func(n *internet) {
		sshd, keygen, git := program(n, "sshd"), program(n, "ssh-keygen"), program(n, "git")
		n.peers("8.3.3.3 ssh.test\n")
		n.repository("repo.git", "first")
		for _, key := range []string{"host", "key"} {
			n.once(keygen, "-q", "-t", "ed25519", "-N", "", "-f", n.dir+"/"+key)
		}
		config := n.file("sshd_config", "HostKey "+n.dir+"/host\nAuthorizedKeysFile "+n.dir+"/key.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n", 0o644)
		n.inetd("8.3.3.3:22", sshd, "-i", "-e", "-f", config)
		n.inetd("8.3.3.3:9418", git, "daemon", "--inetd", "--export-all", "--base-path="+n.dir)
		hostKey, err := os.ReadFile(n.dir + "/host.pub")
		if err != nil {
			n.Fatal(err)
		}
		known := n.file("known", "ssh.test "+string(hostKey), 0o644)
		os.Chmod(n.dir+"/key", 0o644)
		r := n.inside(`cp /in/key key && chmod 600 key
export GIT_SSH_COMMAND="ssh -F /dev/null -i $PWD/key -o UserKnownHostsFile=/in/known -o StrictHostKeyChecking=yes"
git clone -q ssh://peer@ssh.test`+n.dir+`/repo.git a && git -C a log --format=%s
git clone -q git://ssh.test/repo.git b && git -C b log --format='%s again'
git clone -q ssh://peer@dark.test/repo.git c || echo refused
git clone -q git://good.test/repo.git d || echo refused`,
			"--in", n.dir+"/key:key", "--in", known+":known", "--allow-domain", "ssh.test:22,9418", "--allow-domain", "good.test:443")
		if r.stdout != "first\nfirst again\nrefused\nrefused\n" {
			n.Errorf("git: %+v", r)
		}
		for _, want := range []string{"blocked: dark.test (no rule)", "blocked: good.test:9418 ("} {
			if !strings.Contains(r.stderr, want) {
				n.Errorf("stderr lacks %q: %s", want, r.stderr)
			}
		}
	})
}

// TestEgressPostgreSQL checks PostgreSQL's own form of TLS, which starts after a first plaintext message, with
// certificate verification.
func TestEgressPostgreSQL(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "psql")
		n.peers("8.3.3.3 pg.test\n")
		initdb, server, data := postgres(n, "initdb"), postgres(n, "postgres"), n.dir+"/pg"
		cert := n.certificate("pg.test")
		der, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
		if err != nil {
			n.Fatal(err)
		}
		key := n.file("pg.key", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})), 0o600)
		pw := n.file("pw", "sesame\n", 0o644)
		n.once(initdb, "-D", data, "-U", "app", "-A", "scram-sha-256", "--pwfile", pw, "-E", "UTF8", "--locale=C", "--no-sync")
		appendTo(n, data+"/pg_hba.conf", "hostssl all all 0.0.0.0/0 scram-sha-256\n")
		n.daemon("8.3.3.3:5433", server, "-D", data, "-h", "8.3.3.3", "-p", "5433", "-k", n.dir,
			"-c", "fsync=off", "-c", "ssl=on", "-c", "ssl_cert_file="+n.ca, "-c", "ssl_key_file="+key)
		r := n.inside(`export PGPASSWORD=sesame PGSSLMODE=verify-full PGSSLROOTCERT=/in/ca.pem PGCONNECT_TIMEOUT=10
psql -XAtq -h pg.test -p 5433 -U app postgres <<'S'
create table t (v text); insert into t select repeat('x', 1000) from generate_series(1, 2000);
select count(*), sum(length(v)), (select ssl from pg_stat_ssl where pid = pg_backend_pid()) from t;
S
psql -XAtq -h pg.test -p 5432 -U app postgres -c 'select 1' || echo refused
psql -XAtq -h dark.test -p 5432 -U app postgres -c 'select 1' || echo refused`, "--allow-domain", "pg.test:5433")
		if r.stdout != "2000|2000000|t\nrefused\nrefused\n" || n.heard("tcp") {
			n.Errorf("psql: %+v; seen %q", r, n.seen)
		}
	})
}

func TestEgressRedis(t *testing.T) {
	onInternet(t, func(n *internet) {
		server := program(n, "redis-server")
		program(n, "redis-cli")
		n.peers("8.3.3.3 redis.test\n")
		n.daemon("8.3.3.3:6379", server, "--bind", "8.3.3.3", "--save", "", "--dir", n.dir, "--requirepass", "sesame")
		r := n.inside(`export REDISCLI_AUTH=sesame
redis-cli -h redis.test set k there
redis-cli -h redis.test get k
seq 3000 | sed 's/.*/incr n/' | redis-cli -h redis.test --pipe | tail -1
redis-cli -h dark.test ping 2>/dev/null || echo refused
redis-cli -h good.test ping 2>/dev/null || echo refused`, "--allow-domain", "redis.test:6379", "--allow-domain", "good.test:443")
		if r.stdout != "OK\nthere\nerrors: 0, replies: 3000\nrefused\nrefused\n" {
			n.Errorf("redis: %+v", r)
		}
	})
}

// TestEgressRuntimes checks runtimes that ignore proxies and runtimes that use them. Java is tested where it is
// installed.
func TestEgressRuntimes(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "node")
		program(n, "python3")
		script := `cat > f.mjs <<'E'
for (const u of ["http://good.test/n", "https://good.test/n"]) process.stdout.write(await (await fetch(u)).text())
try { await fetch("http://dark.test/") } catch (e) { console.log(e.cause.code) }
E
NODE_EXTRA_CA_CERTS=/in/ca.pem node f.mjs
cat > f.py <<'E'
import socket, urllib.error, urllib.request
for u in "http://good.test/p", "https://good.test/p":
    print(urllib.request.urlopen(u).read().decode(), end="")
try: urllib.request.urlopen("http://dark.test/")
except urllib.error.HTTPError as e: print(e.code)
s = socket.create_connection(("good.test", 80))
s.sendall(b"GET /raw HTTP/1.0\r\nHost: good.test\r\n\r\n")
print(s.makefile().read().splitlines()[-1])
E
SSL_CERT_FILE=/in/ca.pem python3 f.py
`
		hello := "hello from good.test\n"
		want := hello + hello + "ENOTFOUND\n" + hello + hello + "403\n" + hello
		if _, err := exec.LookPath("javac"); err == nil {
			script += `cat > F.java <<'E'
public class F { public static void main(String[] a) throws Exception {
  for (String u : new String[] {"http://good.test/j", "https://good.test/j"}) System.out.print(new String(new java.net.URL(u).openStream().readAllBytes()));
  try { new java.net.Socket("dark.test", 80); } catch (java.net.UnknownHostException e) { System.out.println("unknown"); }
} }
E
keytool -importcert -noprompt -alias test -file /in/ca.pem -keystore trust -storepass changeit 2> /dev/null
java -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Djavax.net.ssl.trustStore=trust -Djavax.net.ssl.trustStorePassword=changeit F.java
`
			want += hello + hello + "unknown\n"
		}
		r := n.inside(script, "--allow-domain", "good.test", "--memory", "1g")
		if r.stdout != want {
			n.Errorf("%+v\nwant %q", r, want)
		}
	})
}

// TestEgressKeptAlive checks that one connection carries several requests.
func TestEgressKeptAlive(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "curl")
		r := n.inside(`u=https://good.test; for proxied in '' '--noproxy good.test'; do
curl -sS $proxied --cacert /in/ca.pem -w '%{num_connects}\n' $u/1 $u/2 $u/3; done`, "--allow-domain", "good.test")
		three := "hello from good.test\n1\nhello from good.test\n0\nhello from good.test\n0\n"
		if r.stdout != three+three {
			n.Errorf("kept alive: %+v", r)
		}
	})
}

// TestEgressDNS checks that an allowed name has addresses and no other records, and that any other name does not
// exist. No query leaves the sandbox, so TXT lookups cannot carry data out.
func TestEgressDNS(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "dig")
		r := n.inside(`for q in 'good.test A' 'good.test AAAA' 'good.test TXT' 'good.test HTTPS' 'GOOD.test. A +tcp' 'dark.test A' 'dark.test TXT' 'x.good.test A' '-x 8.1.1.1'; do
dig +tries=1 +time=5 $q | awk '/status:/ {sub(",", "", $6); s = $6} /ANSWER:/ {sub(".*ANSWER: ", ""); sub(",.*", ""); print s, $0}'
done
dig +short good.test A | cut -d. -f1,2`, "--allow-domain", "good.test")
		want := "NOERROR 1\nNOERROR 1\nNOERROR 0\nNOERROR 0\nNOERROR 1\nNXDOMAIN 0\nNXDOMAIN 0\nNXDOMAIN 0\nNXDOMAIN 0\n198.19\n"
		if r.stdout != want {
			n.Errorf("dns: %+v", r)
		}
		if !strings.Contains(r.stderr, "blocked: dark.test (no rule)") {
			n.Errorf("stderr says: %s", r.stderr)
		}
	})
}

// TestEgressUDP checks that UDP is refused at once, on IPv6 as on IPv4, so that QUIC falls back to TCP.
func TestEgressUDP(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		r := n.inside(`python3 - <<'E'
import errno, socket
for family, host in ((2, "good.test"), (10, "good.test"), (2, "8.1.1.1"), (10, "2606:4700::1"), (2, "198.18.0.1")):
    try:
        s = socket.socket(family, socket.SOCK_DGRAM); s.settimeout(20)
        s.connect(socket.getaddrinfo(host, 443, family, socket.SOCK_DGRAM)[0][4])
        s.send(b"initial"); s.recv(1)
    except OSError as e: print(errno.errorcode.get(e.errno, e))
E`, "--allow-domain", "good.test", "--allow-domain", "8.1.1.1:443")
		if r.stdout != "ECONNREFUSED\nECONNREFUSED\nENETUNREACH\nENETUNREACH\nECONNREFUSED\n" {
			n.Errorf("udp: %+v", r)
		}
	})
}

package integration

import "testing"

// dnsOddities sends queries that no resolver should accept. It prints those that are answered, and then the
// answers to an ordinary query.
const dnsOddities = `
import socket, struct
def head(questions=1): return struct.pack(">HHHHHH", 7, 256, questions, 0, 0, 0)
def name(*labels): return b"".join(bytes([len(l)]) + l for l in labels) + b"\0"
good, a = name(b"good", b"test"), struct.pack(">HH", 1, 1)
odd = {
    "nothing": b"", "half a head": b"\0\7\1", "no question": head(0), "a cut question": head() + good,
    "many questions": head(400) + (good + a) * 400, "more questions than there are": head(65535) + good + a,
    "a long label": head() + name(b"x" * 63, b"good", b"test") + a, "a longer one": head() + b"\x40" + b"x" * 64 + good + a,
    "a reserved kind of label": head() + b"\x80x" + good + a, "a long name": head() + name(*[b"y" * 60] * 5, b"good", b"test") + a,
    "a loop": head() + b"\xc0\x0c" + a, "a loop of two": head() + b"\xc0\x0e\xc0\x0c" + a, "a pointer ahead": head() + b"\xc0\x40" + a,
    "a label and a loop": head() + b"\1x\xc0\x0c" + a, "a pointer out": head() + b"\xff\xff" + a,
    "an answer": struct.pack(">HHHHHH", 7, 0x8180, 1, 1, 0, 0) + good + a + good + a + struct.pack(">IH4s", 9, 4, b"\1\1\1\1"),
    "nuls in a label": head() + name(b"good.test\0", b"dark", b"test") + a, "dots in a label": head() + name(b"a.good", b"test") + a,
}
for kind in 10, 16, 255, 251, 252, 65, 64, 257, 65280: odd["kind %d" % kind] = head() + good + struct.pack(">HH", kind, 1)
def told(reply): return "nothing" if len(reply) < 12 else "%d answers" % struct.unpack(">H", reply[6:8])
def udp(q, wait):
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(wait); s.connect(("198.18.0.1", 53))
    try: s.send(q); return told(s.recv(65535))
    except OSError: return "nothing"
def tcp(q, wait):
    s = socket.create_connection(("198.18.0.1", 53), wait)
    try: s.sendall(struct.pack(">H", len(q)) + q); return told(s.recv(65535)[2:])
    except OSError: return "nothing"
for what, q in odd.items():
    for ask in udp, tcp:
        if ask(q, 0.3) not in ("nothing", "0 answers"): print(what, "by", ask.__name__, "is answered")
held = [socket.create_connection(("198.18.0.1", 53)) for _ in range(100)]
for s in held: s.sendall(b"\xff\xff" + b"z" * 1000)
for ask in udp, tcp: print(ask(head() + good + a, 10))
`

// TestEscapeN16DNSOddities checks that malformed or unusual queries get no data except the address of an allowed
// name (N16). The name server forwards none of them, and continues to answer.
func TestEscapeN16DNSOddities(t *testing.T) {
	onInternet(t, func(n *internet) {
		program(n, "python3")
		asked := n.nameServer("8.9.9.9:53")
		r := n.inside("python3 - <<'E'\n"+dnsOddities+"E", "--allow-domain", "good.test")
		if r.stdout != "1 answers\n1 answers\n" {
			n.Errorf("DNS: %+v", r)
		}
		select {
		case q := <-asked:
			n.Errorf("a query left: %q", q)
		default:
		}
	})
}

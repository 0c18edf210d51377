package debian

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/ProtonMail/go-crypto/openpgp"
	"github.com/ProtonMail/go-crypto/openpgp/clearsign"
)

//go:embed keys.asc
var keys string

// The bounds of what a mirror may send, in bytes.
const (
	maxRelease = 4 << 20
	maxIndex   = 200 << 20 // unpacked
	maxDeb     = 200 << 20
)

// release is a verified release of a distribution.
type release struct {
	mirror, suite string
	files         map[string]file // by path below dists/SUITE
}

type file struct {
	sum  string // SHA-256, in hex
	size int64
}

// openRelease fetches and verifies the InRelease file of a suite.
func openRelease(ctx context.Context, mirror, suite string) (*release, error) {
	text, err := fetch(ctx, mirror+"/dists/"+suite+"/InRelease", maxRelease)
	if err != nil {
		return nil, err
	}
	ring, err := openpgp.ReadArmoredKeyRing(strings.NewReader(keys))
	if err != nil {
		return nil, fmt.Errorf("read keys: %w", err)
	}
	plain, err := verify(text, ring, time.Now())
	if err != nil {
		return nil, fmt.Errorf("verify InRelease of %s: %w", suite, err)
	}
	r := &release{mirror: mirror, suite: suite, files: map[string]file{}}
	return r, r.parse(string(plain))
}

// verify returns the signed text of a clear-signed message, which is a Release file.
func verify(text []byte, ring openpgp.EntityList, now time.Time) ([]byte, error) {
	block, rest := clearsign.Decode(text)
	if block == nil {
		return nil, errors.New("it is not signed")
	}
	if len(bytes.TrimSpace(rest)) > 0 {
		return nil, errors.New("text after the signature")
	}
	if _, err := block.VerifySignature(ring, nil); err != nil {
		return nil, err
	}
	return block.Plaintext, current(string(block.Plaintext), now)
}

// The ages up to which a release is accepted that names no end itself. A mirror could send an old one for ever, with
// packages whose faults are known. Debian makes a point release of stable every two or three months, and at most 133 days
// after the last one so far. Afterwards the same release is signed as oldstable: one last time, and supported two years.
const (
	maxAge    = 200 * 24 * time.Hour
	maxOldAge = 2 * 366 * 24 * time.Hour
	maxAhead  = 24 * time.Hour // by which this machine's clock may be slow
)

// current returns an error for a release that is out of date.
func current(text string, now time.Time) error {
	head := paragraphs(text)
	if len(head) == 0 {
		return errors.New("it is empty")
	}
	date, err := time.Parse(time.RFC1123, head[0]["Date"])
	if err != nil {
		return fmt.Errorf("read its date: %w", err)
	}
	until := date.Add(maxAge)
	if strings.HasPrefix(head[0]["Suite"], "old") {
		until = date.Add(maxOldAge)
	}
	if value, ok := head[0]["Valid-Until"]; ok {
		if until, err = time.Parse(time.RFC1123, value); err != nil {
			return fmt.Errorf("read the end of its validity: %w", err)
		}
	}
	switch {
	case date.After(now.Add(maxAhead)):
		return fmt.Errorf("it is of %s: this machine's clock is slow, or the mirror is wrong", head[0]["Date"])
	case now.After(until):
		return fmt.Errorf("it is of %s and was valid until %s: the mirror is out of date", head[0]["Date"], until.UTC().Format(time.RFC1123))
	}
	return nil
}

// parse reads the list of files in a Release file.
func (r *release) parse(text string) error {
	for _, f := range paragraphs(text) {
		if f["Suite"] != r.suite && f["Codename"] != r.suite {
			return fmt.Errorf("the mirror's %s is a release of %q", r.suite, f["Codename"])
		}
		for line := range strings.Lines(f["SHA256"]) {
			if w := strings.Fields(line); len(w) == 3 {
				size, err := strconv.ParseInt(w[1], 10, 64)
				if err != nil || size < 0 {
					return fmt.Errorf("size of %q: %q", w[2], w[1])
				}
				r.files[w[2]] = file{w[0], size}
			}
		}
	}
	if len(r.files) == 0 {
		return errors.New("the release lists no files")
	}
	return nil
}

// packages fetches the index of main's packages.
func (r *release) packages(ctx context.Context, arch string) (string, error) {
	dir := "main/binary-" + arch + "/"
	f, ok := r.files[dir+"Packages.gz"]
	if !ok || f.size > maxIndex {
		return "", fmt.Errorf("release %s has no packages for %s", r.suite, arch)
	}
	// A name by digest does not change while the mirror is updated.
	raw, err := fetchFile(ctx, r.mirror+"/dists/"+r.suite+"/"+dir+"by-hash/SHA256/"+f.sum, f)
	if err != nil {
		raw, err = fetchFile(ctx, r.mirror+"/dists/"+r.suite+"/"+dir+"Packages.gz", f)
	}
	if err != nil {
		return "", err
	}
	z, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return "", fmt.Errorf("read index of packages: %w", err)
	}
	text, err := io.ReadAll(io.LimitReader(z, maxIndex))
	if err != nil {
		return "", fmt.Errorf("read index of packages: %w", err)
	}
	return string(text), nil
}

// fetchFile fetches a file of known size and digest.
func fetchFile(ctx context.Context, url string, f file) ([]byte, error) {
	b, err := fetch(ctx, url, f.size)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(b)
	if hex.EncodeToString(sum[:]) != f.sum {
		return nil, fmt.Errorf("fetch %s: its content does not match its digest", url)
	}
	return b, nil
}

// tries is how often a file is fetched, as mirrors end connections.
const tries = 4

// fetch returns the content of a URL, which is at most most bytes.
func fetch(ctx context.Context, url string, most int64) (b []byte, err error) {
	for n := range tries {
		if b, err = fetchOnce(ctx, url, most); err == nil || errors.Is(err, errStatus) || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Duration(n+1) * time.Second)
	}
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", url, err)
	}
	return b, nil
}

// errStatus is the error of an answer other than 200.
var errStatus = errors.New("the mirror answered")

func fetchOnce(ctx context.Context, url string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%w: %s", errStatus, resp.Status)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, most+1))
	if err == nil && int64(len(b)) > most {
		err = fmt.Errorf("%w: more than %d bytes", errStatus, most)
	}
	return b, err
}

// paragraphs parses Debian's control format. Lines that continue a field are joined by newlines.
func paragraphs(text string) (all []map[string]string) {
	for block := range strings.SplitSeq(text, "\n\n") {
		p, last := map[string]string{}, ""
		for line := range strings.Lines(block) {
			line = strings.TrimRight(line, "\r\n")
			if line != "" && (line[0] == ' ' || line[0] == '\t') {
				p[last] += line + "\n"
				continue
			}
			name, value, _ := strings.Cut(line, ":")
			last = name
			p[name] = strings.TrimSpace(value)
		}
		if len(p) > 0 && strings.TrimSpace(block) != "" {
			all = append(all, p)
		}
	}
	return all
}

package procself

import (
	"math"
	"os"
	"strings"
	"testing"
)

func TestRoom(t *testing.T) {
	const no = math.MaxUint64
	for want, c := range map[string]struct {
		as, nproc uint64
		used      int
	}{
		"":             {no, no, 10},
		"(ulimit -v)":  {512 << 20, no, 0},
		"(ulimit -u)":  {no, 100, 53},
		"is 512 MiB":   {512 << 20, 1, 53},
		"is 100, 53 a": {no, 100, 53},
	} {
		err := room(c.as, c.nproc, c.used)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", c, err, want)
		}
	}
	if err := room(no, 100, 52); err != nil {
		t.Error(err)
	}
	if n := ownThreads(os.Getuid()); n < 1 {
		t.Errorf("%d threads of this user", n)
	}
}

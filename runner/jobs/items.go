package jobs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// List are the items of a job that does the same for each of them. The zero value makes an ordinary job.
//
// Item N of job J is J/N, from 1 on. It is a job for [Store.Get] and the methods built on it, and its directory J/N has the files of
// one: node, started, stdout.log, stderr.log, cancel and result.json. It has neither a process, a lock nor a request of its
// own: what remains undone when J ends has died, or was cancelled with J.
type List struct {
	Items    []string `json:"items"`    // without newlines
	Parallel int      `json:"parallel"` // items at once; 0: on a cluster, as many as it allows
}

// Item is one item. N is 0 for a job without a list.
type Item struct {
	N    int
	Text string
}

// Share is a part of a list: the items First+1, First+1+Of, and so on.
type Share struct{ First, Of int }

const itemsFile = "items"

func (l List) write(dir string) error {
	if len(l.Items) == 0 {
		return nil
	}
	return os.WriteFile(filepath.Join(dir, itemsFile), []byte(strings.Join(l.Items, "\n")), 0o600)
}

// itemOf splits the id of an item.
func itemOf(id string) (list string, n int, ok bool) {
	list, number, ok := strings.Cut(id, "/")
	n, err := strconv.Atoi(number)
	return list, n, ok && err == nil && n > 0 && strconv.Itoa(n) == number
}

// ItemID returns the id of an item.
func ItemID(list string, n int) string { return fmt.Sprintf("%s/%d", list, n) }

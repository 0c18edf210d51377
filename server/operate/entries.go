package operate

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"demesne/session/audit"
)

// Bounds of one answer.
const (
	entriesUsual = 100
	maxEntries   = 1000
)

// entries answers with entries of the audit log: those after a number, the oldest first, or the newest ones.
func (op *Operator) entries(w http.ResponseWriter, r *http.Request) {
	f, q, err := filterOf(r, "limit")
	limit, wrong := number(q, "limit", entriesUsual)
	if err == nil {
		err = wrong
	}
	if err == nil && (limit < 1 || limit > maxEntries) {
		err = fmt.Errorf("parameter \"limit\": not from 1 to %d", maxEntries)
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	var all []audit.Entry
	err = audit.Read(r.Context(), op.opts.Dir, f, func(e audit.Entry) bool {
		if all = append(all, e); len(all) > 2*maxEntries {
			all = append([]audit.Entry(nil), all[len(all)-maxEntries:]...)
		}
		return !q.Has("after") || len(all) < int(limit)
	})
	if err != nil {
		op.opts.Log.Print(err)
		refuse(w, http.StatusInternalServerError, "the audit log cannot be read")
		return
	}
	answer(w, http.StatusOK, struct {
		Entries []audit.Entry `json:"entries"`
	}{append([]audit.Entry{}, all[max(0, len(all)-int(limit)):]...)})
}

// verify answers with the state of the chain. mark is ID:SHA256 of an entry that the caller remembers.
func (op *Operator) verify(w http.ResponseWriter, r *http.Request) {
	marks := map[uint64]string{}
	if v := r.URL.Query().Get("mark"); v != "" {
		id, sum, ok := strings.Cut(v, ":")
		n, err := strconv.ParseUint(id, 10, 64)
		if !ok || err != nil {
			refuse(w, http.StatusBadRequest, "parameter \"mark\": not ID:SHA256")
			return
		}
		marks[n] = sum
	}
	report, err := audit.Verify(r.Context(), op.opts.Dir, marks)
	if err != nil {
		op.opts.Log.Print(err)
		refuse(w, http.StatusInternalServerError, "the audit log cannot be read")
		return
	}
	answer(w, http.StatusOK, report)
}

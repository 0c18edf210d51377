package layers

import "testing"

// TestRecordOwner checks both directions of the record, and that a record by an image or a sandbox does no harm.
func TestRecordOwner(t *testing.T) {
	for _, tt := range []struct {
		uid, gid uint32
		want     string
	}{
		{1, 2, "\x08\x01\x10\x02"}, {1000, NoID, "\x08\xe8\x07\x10\xff\xff\xff\xff\x0f"},
	} {
		got := RecordOwner(tt.uid, tt.gid)
		if got != tt.want {
			t.Errorf("RecordOwner(%d, %d) = %+q, want %+q", tt.uid, tt.gid, got, tt.want)
		}
		if uid, gid, ok := RecordedOwner(got); uid != tt.uid || gid != tt.gid || !ok {
			t.Errorf("RecordedOwner(%+q) = %d, %d, %t", got, uid, gid, ok)
		}
	}
	if uid, gid, ok := RecordedOwner("\x08\x07"); uid != 7 || gid != 0 || !ok {
		t.Errorf("without a gid: %d, %d, %t", uid, gid, ok)
	}
	for _, value := range []string{"", "x", "\x08", "\x10\xff", "\x08\xff\xff\xff\xff\x1f", "\x1a\x01x", "\x08\x01\x10\x02\x00"} {
		if uid, gid, ok := RecordedOwner(value); ok {
			t.Errorf("RecordedOwner(%+q) = %d, %d", value, uid, gid)
		}
	}
}

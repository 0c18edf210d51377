package agents

import "testing"

// BenchmarkTranscript reads a run of two turns.
func BenchmarkTranscript(b *testing.B) {
	all := testdata(b, "claude.jsonl")
	b.SetBytes(int64(len(all)))
	for b.Loop() {
		t, _ := newTranscript("claude")
		t.Write(all)
	}
}

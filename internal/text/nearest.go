package text

import "strings"

// longest is the longest word that Nearest considers, in bytes. Typing errors occur in shorter words, and the work
// grows with the square of the length.
const longest = 64

// Nearest returns the word closest to s, or "" if no word is close enough.
func Nearest(s string, words []string) string {
	best, least := "", min(len(s)/3+2, 4)
	if len(s) > longest {
		return ""
	}
	for _, w := range words {
		if d := distance(s, w); d < least {
			best, least = w, d
		}
	}
	return best
}

// distance returns the number of insertions, deletions, substitutions and swaps of adjacent bytes that turn a into
// b.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}

// Or lists words for a sentence: "a, b or c".
func Or(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	last := len(words) - 1
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

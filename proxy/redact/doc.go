// Package redact blanks credentials in what passes by: every byte of one becomes an
// asterisk, so that lengths and positions stay what they were.
//
//	v := redact.New(token, password)
//	line = v.Text(line)
//	w := v.Writer(file)     // Close gives what was held back, and leaves file open
//	body = v.Reader(body)
//
// A value is found as it is, however it is cut into writes. One of [encodedFrom] bytes or
// more is also found in base64 (of either alphabet, and inside a longer text, as in basic
// authentication), escaped for a URL, and escaped for JSON. One of less than [least] bytes
// is no credential: it would be found everywhere, and is left alone.
//
// This keeps a credential out of sight where nobody means to show it. It does not stop who
// has one from telling it: backwards, in hexadecimal, a byte a line.
//
// Bytes that may be the beginning of a value are held back until the next ones say, so
// never more than the longest form of one. The package looks for a few fixed strings with
// [bytes.Index], and knows of nothing else.
package redact

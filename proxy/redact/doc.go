// Package redact blanks credentials in text and streams. It replaces every byte of a credential by an asterisk,
// so lengths and positions do not change.
//
//	v := redact.New(token, password)
//	line = v.Text(line)
//	w := v.Writer(file)     // Close writes the bytes held back, and does not close file
//	body = v.Reader(body)
//
// A value is found in plain form, however writes split it. A value of at least [encodedFrom] bytes is also found
// in base64, in hexadecimal, and escaped for a URL, for HTML, for JSON, and for JSON in JSON, as the usual libraries
// write it. Base64 may use either alphabet, may contain a longer text, as in basic authentication, and may be broken into
// lines, as in MIME and PEM. A value of less than [least] bytes is ignored, because it would match everywhere.
//
// This prevents accidental disclosure. It does not stop a program that has a credential from encoding it in
// another way: backwards, one byte a line, or in base64 with spaces.
//
// Bytes that may begin a value are held back until the next bytes decide, so never more than the longest form of
// a value. The package searches for fixed strings with [bytes.Index] only.
package redact

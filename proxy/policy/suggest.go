package policy

import (
	"slices"
	"strconv"
	"strings"
)

// Instead returns a rule to suggest in place of one that ParseRule rejected. It guesses the most likely one, or
// returns examples. It is meant for people, who may have pasted a URL.
func Instead(refused string) string {
	if guess := guess(refused); guess != "" {
		if _, err := ParseRule(guess); err == nil {
			return guess
		}
	}
	return "example.com, *.example.com:443 or 10.1.0.0/16:5432"
}

// services maps common names of services to their ports.
var services = map[string]string{"http": "80", "https": "443", "ssh": "22", "git": "9418", "postgres": "5432", "postgresql": "5432", "redis": "6379"}

// guess turns s, which is not a rule, into text that may be one.
func guess(s string) string {
	scheme, rest, isURL := strings.Cut(strings.TrimSpace(s), "://")
	if !isURL {
		scheme, rest = "", scheme
	}
	at := strings.LastIndexByte(rest, '@')
	rest = rest[at+1:]
	if i := strings.IndexAny(rest, "/?# "); i >= 0 {
		rest = rest[:i]
	}
	host, list := rest, ""
	if i := strings.LastIndexByte(rest, ':'); i > strings.LastIndexByte(rest, ']') && strings.Count(rest, ":") == 1 {
		host, list = rest[:i], rest[i+1:]
		switch {
		case at >= 0 && !isURL: // git@github.com:owner/repository
			list = "22"
		default:
			list = guessPorts(list)
		}
	} else if port := services[scheme]; port != "" && scheme != "https" {
		list = port
	}
	host = guessHost(host)
	if list != "" {
		host += ":" + list
	}
	if scheme == "tcp" {
		return "tcp://" + host
	}
	return host
}

func guessHost(host string) string {
	host, _, _ = strings.Cut(host, "%")
	if i := strings.LastIndexByte(host, '*'); i >= 0 {
		host = "*." + strings.TrimLeft(host[i+1:], ".")
	}
	if zone, ok := strings.CutPrefix(host, "*."); ok && zone != "" && (&Rule{}).setZone(zone) != nil {
		return "*.example." + zone
	}
	for strings.Contains(host, "..") {
		host = strings.ReplaceAll(host, "..", ".")
	}
	if labels := strings.Split(host, "."); len(labels) < 4 && !slices.ContainsFunc(labels, notOctet) {
		return host + strings.Repeat(".0", 4-len(labels)) + "/" + []string{"8", "16", "24"}[len(labels)-1]
	}
	return host
}

func notOctet(label string) bool {
	_, err := strconv.ParseUint(label, 10, 8)
	return err != nil
}

// guessPorts keeps the ports and service names in a list.
func guessPorts(list string) string {
	var good []string
	for p := range strings.SplitSeq(list, ",") {
		p = strings.TrimSpace(p)
		if n := services[strings.ToLower(p)]; n != "" {
			p = n
		}
		if from, to, isRange := strings.Cut(p, "-"); isRange {
			if _, err := parsePorts(p); err != nil {
				p = to + "-" + from
			}
		}
		if _, err := parsePorts(p); err == nil && p != "" {
			good = append(good, p)
		}
	}
	if good == nil {
		return "443"
	}
	return strings.Join(good, ",")
}

package policy

import "net/netip"

// Classify returns the class of a, by the most specific row of the registry. A v4-mapped address counts as the
// IPv4 address. Any other address that carries one is Translated.
func Classify(a netip.Addr) Class {
	a = a.Unmap().WithZone("")
	best, class := -1, classReserved
	for _, b := range registry {
		if b.prefix.Bits() >= best && b.prefix.Contains(a) {
			best, class = b.prefix.Bits(), b.class
		}
	}
	return class
}

// carried returns the IPv4 address that a Translated address leads to, or one such address if there may be
// several.
func carried(a netip.Addr) (netip.Addr, bool) {
	if !a.Is6() {
		return netip.Addr{}, false
	}
	b := a.As16()
	for _, c := range carriers {
		if c.prefix.Contains(a) {
			return netip.AddrFrom4([4]byte{b[c.at[0]] ^ c.flip, b[c.at[1]] ^ c.flip, b[c.at[2]] ^ c.flip, b[c.at[3]] ^ c.flip}), true
		}
	}
	return netip.Addr{}, false
}

// carriers gives the position of the IPv4 address in each kind. The operator chooses the layout within
// 64:ff9b:1::/48; this is RFC 6052's for /48, which skips byte 8. Teredo inverts the address.
var carriers = []struct {
	prefix netip.Prefix
	at     [4]int
	flip   byte
}{
	{netip.MustParsePrefix("::ffff:0:0/96"), last, 0},
	{netip.MustParsePrefix("::ffff:0:0:0/96"), last, 0},
	{netip.MustParsePrefix("::/96"), last, 0},
	{netip.MustParsePrefix("64:ff9b::/96"), last, 0},
	{netip.MustParsePrefix("64:ff9b:1::/48"), [4]int{6, 7, 9, 10}, 0},
	{netip.MustParsePrefix("2001::/32"), last, 0xff},
	{netip.MustParsePrefix("2002::/16"), [4]int{2, 3, 4, 5}, 0},
}

var last = [4]int{12, 13, 14, 15}

package runner

import (
	"strings"
	"testing"
)

// TestMember checks the names of groups and members, and that a frontend's group is its own.
func TestMember(t *testing.T) {
	for _, good := range []string{"db", "my_db", "a", "7", strings.Repeat("a", 63)} {
		if err := CheckMember(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []string{"", "-a", "a.b", "A", "localhost", "demesne", "a b", "a@b", "a/b", "é", "*", strings.Repeat("a", 64)} {
		if CheckMember(bad) == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	for _, c := range []struct {
		name, group string
		frontend    Frontend
		want        Member
	}{
		{"db.shop", "shop", FrontendCLI, Member{"/shop", "db"}},
		{"db.shop", "shop", FrontendMCP, Member{"mcp/shop", "db"}},
		{"db.shop@team", "shop", FrontendOf("team"), Member{"ns:team/shop", "db"}},
		{"", "shop", FrontendCLI, Member{"/shop", "id"}},
	} {
		s := Spec{Name: c.name, Frontend: c.frontend, Egress: &Egress{Group: c.group}}
		if m, ok := s.Member("id"); m != c.want || !ok {
			t.Errorf("%+v: %+v, %t", c, m, ok)
		}
	}
	for _, s := range []Spec{{Name: "db"}, {Name: "db", Egress: &Egress{}}} {
		if m, ok := s.Member("id"); ok {
			t.Errorf("without a group: %+v", m)
		}
	}
}

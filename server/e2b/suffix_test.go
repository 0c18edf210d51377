package e2b

import (
	"net/http/httptest"
	"strings"
	"testing"
)

// TestIDSuffix checks that the host name of a port leads to a sandbox whose id ends with its server's name.
func TestIDSuffix(t *testing.T) {
	o := Options{Domain: "demesne-0.pods:7480", Suffix: "demesne-0"}
	made := o.newSandboxID()
	if !strings.HasPrefix(made, "i") || !strings.HasSuffix(made, "-demesne-0") {
		t.Error(made)
	}
	id, port, ok := o.target(httptest.NewRequest("GET", "http://8080-"+made+".demesne-0.pods:7480/", nil))
	if id != made || port != 8080 || !ok {
		t.Errorf("%q, %d, %v", id, port, ok)
	}
}

package runner

// GateMessage is a message from the proxy over a [Route]'s Gate, a socket of type SOCK_SEQPACKET that carries JSON. The
// proxy forwards a request once its question has an answer without a refusal. The request's [UsageRecord] has the same
// Number. If the proxy ends, the next one continues on the same socket.
//
//	proxy                                  caller
//	  │ start {} ─────────────────────────▶│ a new process: earlier requests that have no record yet get none
//	  │ ask {number, model, sent, …} ─────▶│ reserves what the request may cost
//	  │◀────────────── {number, refused} ──│ later, and in any order
//	  │ drop {number} ────────────────────▶│ the request was not forwarded
type GateMessage struct {
	Op        string `json:"op"` // one of the constants below
	Number    int64  `json:"number,omitempty"`
	Model     string `json:"model,omitempty"`      // that the request names
	Sent      int64  `json:"sent,omitempty"`       // bytes of its body
	MaxOutput int64  `json:"max_output,omitempty"` // the most tokens that it asks for; 0: it does not say
	Odd       string `json:"odd,omitempty"`        // why its cost cannot be known; empty: it can
}

// The operations of a GateMessage.
const (
	GateStart = "start"
	GateAsk   = "ask"
	GateDrop  = "drop"
)

// GateAnswer is the answer to a question.
type GateAnswer struct {
	Number  int64  `json:"number"`
	Refused string `json:"refused,omitempty"` // why the request is not forwarded; empty: it is
}

// MaxGateMessage bounds a message of either kind, in bytes.
const MaxGateMessage = 8 << 10

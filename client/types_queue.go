package client

// Queue counts the commands of /v1 and MCP: those of the caller's namespace, or all for the operator.
type Queue struct {
	Running    int `json:"running"`
	Waiting    int `json:"waiting"`
	MaxRunning int `json:"max_running" doc:"More wait; 0: no bound"`
	MaxWaiting int `json:"max_waiting" doc:"More are refused with status 429"`
}

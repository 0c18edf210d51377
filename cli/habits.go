package cli

// programHabits are verbs of docker and podman.
func programHabits() map[string]string {
	const (
		list  = "demesne ls lists sandboxes; demesne jobs lists background jobs"
		end   = "demesne stop ID ends the processes of a sandbox; demesne cancel JOB ends a background job"
		again = "demesne exec ID -- CMD starts a stopped sandbox again"
		clean = "demesne gc removes unused data; demesne rm ID removes a sandbox"
		allow = "demesne egress allow ID NAME adds a network rule; demesne run --allow-domain NAME allows a name from the start"
	)
	return map[string]string{
		"kill": end, "pause": "demesne create --pause-idle DURATION pauses an unused sandbox", "unpause": again,
		"ps": list, "list": list, "container": list, "sandbox": list, "start": again, "restart": again,
		"image": "demesne images lists images",
		"load":  "demesne pull docker-archive:FILE copies an archive into the store; demesne import makes an image of a root filesystem",
		"prune": clean, "system": clean, "remove": clean, "delete": clean, "network": allow, "volume": "demesne run --workspace DIR or --mount DIR",
		"update": "demesne limits --memory SIZE ID changes limits of a running sandbox",
		"info":   "demesne check reports what this machine supports", "doctor": "demesne check reports what this machine supports",
		"shell": "demesne run -it -- bash, or demesne exec -it ID -- bash", "sh": "demesne run -it -- sh",
	}
}

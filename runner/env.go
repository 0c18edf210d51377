package runner

// DefaultEnv is the environment every command starts from. Nothing of the caller's
// own passes by itself: API keys, SSH_AUTH_SOCK, LD_PRELOAD and the like stay
// outside (escapes.md P14). --env lets single variables in.
func DefaultEnv() []string { return append([]string(nil), defaultEnv...) }

var defaultEnv = []string{
	"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	"HOME=/root",
	"LANG=C.UTF-8",
	"IS_SANDBOX=1",
	"DEMESNE_IN=/in",
	"DEMESNE_OUT=/out",
	"DEMESNE_WORKSPACE=/workspace",
	// One query at a time and short waits: a name that is not allowed answers fast.
	"RES_OPTIONS=single-request-reopen timeout:2 attempts:3",
	// Tools that phone home stall on hosts they cannot reach.
	"DO_NOT_TRACK=1",
	"WRANGLER_SEND_METRICS=false",
	"WRANGLER_SEND_ERROR_REPORTS=false",
	"NEXT_TELEMETRY_DISABLED=1",
	"NUXT_TELEMETRY_DISABLED=1",
	"NG_CLI_ANALYTICS=false",
	"STORYBOOK_DISABLE_TELEMETRY=1",
	"VERCEL_TELEMETRY_DISABLED=1",
	"YARN_ENABLE_TELEMETRY=0",
	"NO_UPDATE_NOTIFIER=1",
	"npm_config_fund=false",
	"DISABLE_OPENCOLLECTIVE=true",
	"PIP_DISABLE_PIP_VERSION_CHECK=1",
	"PIP_NO_INPUT=1",
	"CHECKPOINT_DISABLE=1",
	"NX_NO_CLOUD=true",
}

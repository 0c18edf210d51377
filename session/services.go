package session

import "demesne/runner/client"

// Services are the services of a sandbox: see [client.Services].
type Services = client.Services

package outbound

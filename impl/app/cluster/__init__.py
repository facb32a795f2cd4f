"""`rocketmq-ha cluster`: a whole cluster on this machine, of separate processes, whose links can be cut.

`plan` says which nodes there are and where they listen, `links` is the process through which all connections go, `processes`
starts and ends processes, `cluster` has them all, `control` takes commands from other terminals, and `status` looks at it.
"""

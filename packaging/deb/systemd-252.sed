# The unit for systemd before 253, which does not know Type=notify-reload. The shell sends the
# signal, since the program kill is in no essential package.
s/^Type=notify-reload/Type=notify\nExecReload=sh -c "kill -HUP $MAINPID"/
/^# systemd before 253/,/^# ExecReload=/d

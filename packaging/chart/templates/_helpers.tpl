{{/* SPDX-License-Identifier: MIT */}}
{{/* Names, labels, and the settings that the values lead to. */}}

{{- define "stint.name" -}}
{{- .Release.Name }}{{ if not (contains "stint" .Release.Name) }}-stint{{ end }}
{{- end }}

{{- define "stint.selector" -}}
app.kubernetes.io/name: stint
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* Called with a list: the root, and what follows the name. */}}
{{- define "stint.metadata" -}}
{{- $root := first . -}}
name: {{ include "stint.name" $root }}{{ last . }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "stint.selector" $root | nindent 2 }}
  app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
{{- end }}

{{- define "stint.replicas" -}}
{{ .Values.autoscaling.enabled | ternary .Values.autoscaling.maxReplicas .Values.replicas }}
{{- end }}

{{/* Limits in a file need a volume of their own. */}}
{{- define "stint.hasState" -}}
{{- if and (not .Values.store.secretName) (ne (toString .Values.state.size) "0") }}true{{ end }}
{{- end }}

{{- define "stint.rulesConfigMap" -}}
{{- if .Values.rulesConfigMap }}{{ .Values.rulesConfigMap }}
{{- else if .Values.rules }}{{ include "stint.name" . }}-rules{{ end }}
{{- end }}

{{/* Name and number of each port that clients use. */}}
{{- define "stint.ports" -}}
http: {{ .Values.ports.http }}
grpc: {{ .Values.ports.grpc }}
{{- if .Values.resp.enabled }}
resp: {{ .Values.resp.port }}
{{- end }}
{{- end }}

{{/* The file that --config names. What the values set under `settings` is stronger. */}}
{{- define "stint.settings" -}}
{{- $name := include "stint.name" . }}
{{- $service := printf "%s.%s" $name .Release.Namespace }}
{{- $tls := ternary "_tls" "" (ne .Values.tls.secretName "") }}
{{- $own := dict
  "http" (list (printf ":%v" .Values.ports.http))
  "grpc" (list "off")
  (printf "grpc%s" $tls) (list (printf ":%v" .Values.ports.grpc))
  "resp" (list "off")
  "http_hosts" (concat (list $name $service (printf "%s.svc" $service)
    (printf "%s.svc.%s" $service .Values.clusterDomain)) .Values.hosts)
  "drain_time" (printf "%vs" .Values.drainSeconds) }}
{{- if .Values.resp.enabled }}
{{- $_ := set $own (printf "resp%s" $tls) (list (printf ":%v" .Values.resp.port)) }}
{{- end }}
{{- $rules := .Values.controlPlanes }}
{{- if include "stint.rulesConfigMap" . }}
{{- $rules = prepend $rules "/etc/stint/rules" }}
{{- end }}
{{- if $rules }}
{{- $_ := set $own "rules" $rules }}
{{- end }}
{{- if .Values.tokens.secretName }}
{{- $_ := set $own "tokens" "/etc/stint/tokens/tokens" }}
{{- else }}
{{- $_ := merge $own (dict "insecure" true "anonymous" (list "ask" "metrics")) }}
{{- end }}
{{- if .Values.tls.secretName }}
{{- $_ := merge $own (dict "tls_certificate" "/etc/stint/tls/tls.crt"
  "tls_key" "/etc/stint/tls/tls.key") }}
{{- if .Values.tls.clientCertificates }}
{{- $_ := set $own "tls_client_ca" "/etc/stint/tls/ca.crt" }}
{{- end }}
{{- end }}
{{- if .Values.store.secretName }}
{{- $_ := merge $own (dict "store" (list "@/etc/stint/store/url") "ready_with_stores" false
  "store_nodes" (include "stint.replicas" . | add1)) }}{{/* a rollout has one more */}}
{{- else if include "stint.hasState" . }}
{{- $_ := set $own "state" "/var/lib/stint/limits" }}
{{- end }}
{{- toYaml (mergeOverwrite $own .Values.settings) }}
{{- end }}

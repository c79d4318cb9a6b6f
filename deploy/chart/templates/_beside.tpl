{{- /* What a cluster only has where it is asked for, from what the workload itself says: its selector, its ports. */ -}}
{{- define "pumice.beside" -}}
{{- $values := .root.Values }}{{ $meta := .object.metadata }}{{ $selector := .object.spec.selector.matchLabels }}
{{- $about := dict "name" $meta.name "namespace" $meta.namespace "labels" (merge (dict) (default dict $values.custom.common_labels) $selector) }}
{{- $asked := list }}{{ $watched := list }}
{{- range (first .object.spec.template.spec.containers).ports }}
{{- if has .name (list "asks" "page") }}{{ $asked = append $asked .name }}{{ else }}{{ $watched = append $watched .name }}{{ end }}
{{- end }}
{{- if gt (int (default 1 .object.spec.replicas)) 1 }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {{ toJson $about }}
spec:
  maxUnavailable: 1
  selector:
    matchLabels: {{ toJson $selector }}
{{- end }}
{{- if $values.networkPolicy.enabled }}
---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {{ toJson $about }}
spec:
  podSelector:
    matchLabels: {{ toJson $selector }}
  policyTypes: [Ingress]
  ingress:
  {{- with $asked }}
  - ports:
    {{- range . }}
    - port: {{ . }}
    {{- end }}
    {{- if eq $meta.name "pumice-web" }}{{ with $values.web.from }}
    from: {{ toJson . }}
    {{- end }}{{ end }}
  {{- end }}
  {{- if $watched }}
  - ports:
    {{- range $watched }}
    - port: {{ . }}
    {{- end }}
    {{- with $values.networkPolicy.metricsFrom }}
    from: {{ toJson . }}
    {{- end }}
  {{- end }}
{{- end }}
{{- if and $values.prometheus.enabled $watched }}
---
apiVersion: monitoring.coreos.com/v1
kind: PodMonitor
metadata: {{ toJson (merge (dict "labels" (merge (dict) $values.prometheus.labels $about.labels)) $about) }}
spec:
  selector:
    matchLabels: {{ toJson $selector }}
  podMetricsEndpoints:
  {{- range $watched }}
  - port: {{ . }}
    honorLabels: true
    relabelings:
    - sourceLabels: [__meta_kubernetes_pod_node_name]
      targetLabel: node
    {{- with $values.prometheus.interval }}
    interval: {{ . }}
    {{- end }}
  {{- end }}
{{- end }}
{{- end }}

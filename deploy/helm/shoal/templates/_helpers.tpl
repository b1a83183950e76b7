{{- define "shoal.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "shoal.labels" -}}
app.kubernetes.io/name: shoal
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "shoal.commonLabels" -}}
{{ include "shoal.labels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "shoal.image" -}}
{{- $image := mergeOverwrite (deepCopy .root.Values.image) (default dict .image) -}}
{{ $image.repository }}:{{ $image.tag | default .root.Chart.AppVersion }}
{{- end -}}

{{- define "shoal.ownStore" -}}
{{- if not (or .Values.store.url .Values.store.existingSecret) -}}yes{{- end -}}
{{- end -}}

{{- define "shoal.storeSecret" -}}
{{ .Values.store.existingSecret | default (printf "%s-store" (include "shoal.name" .)) }}
{{- end -}}

{{- define "shoal.apiSecret" -}}
{{ .Values.api.existingSecret | default (printf "%s-api" (include "shoal.name" .)) }}
{{- end -}}

{{- /* Restricted, as the Pod Security Standards define it. */ -}}
{{- define "shoal.podSecurity" -}}
runAsNonRoot: true
runAsUser: {{ . }}
runAsGroup: {{ . }}
fsGroup: {{ . }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "shoal.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "shoal.environment" -}}
- name: SHOAL_STORE_URL
  valueFrom: {secretKeyRef: {name: {{ include "shoal.storeSecret" . }}, key: url}}
{{- range $name, $value := .Values.settings }}
- name: {{ $name }}
  value: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "shoal.envFrom" -}}
{{- with .Values.envFromSecrets }}
envFrom:
{{- range . }}
  - secretRef: {name: {{ . }}}
{{- end }}
{{- end }}
{{- end -}}

{{- define "shoal.scheduling" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "shoal.egress" -}}
- to:
    - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: kube-system}}
      podSelector: {matchLabels: {k8s-app: kube-dns}}
  ports:
    - {protocol: UDP, port: 53}
    - {protocol: TCP, port: 53}
{{- if include "shoal.ownStore" . }}
- to:
    - podSelector: {matchLabels: {app.kubernetes.io/instance: {{ .Release.Name }}, app.kubernetes.io/component: store}}
  ports:
    - {protocol: TCP, port: 6379}
{{- end }}
{{- if not (include "shoal.ownStore" .) }}
{{- if .Values.store.egress }}
{{ toYaml .Values.store.egress }}
{{- else }}
# The store is at an unknown private address: only its ports are allowed. store.egress can be more precise.
- to:
    - ipBlock: {cidr: 10.0.0.0/8}
    - ipBlock: {cidr: 172.16.0.0/12}
    - ipBlock: {cidr: 192.168.0.0/16}
    - ipBlock: {cidr: fc00::/7}
  ports:
    {{- range .Values.store.ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
{{- end }}
{{- end }}
{{- with .Values.networkPolicy.egress }}
{{ toYaml . }}
{{- end }}
# The public internet, but no address of the cluster, of a private network or of a metadata service.
- to:
    - ipBlock:
        cidr: 0.0.0.0/0
        except: [0.0.0.0/8, 10.0.0.0/8, 100.64.0.0/10, 127.0.0.0/8, 169.254.0.0/16, 172.16.0.0/12, 192.0.0.0/24, 192.168.0.0/16, 198.18.0.0/15, 224.0.0.0/3]
    - ipBlock:
        cidr: ::/0
        except: ["::/127", "64:ff9b:1::/48", "fc00::/7", "fe80::/10", "ff00::/8"]
{{- end -}}

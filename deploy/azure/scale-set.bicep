// A Linux scale set whose VMs announce their end in time, with the agent on each.
// scale-set.json is the same as ARM JSON; a test compares the two.

@description('Name of the scale set; VMs are called NAME_ID.')
param name string = 'web'

param location string = resourceGroup().location

@description('Resource id of the subnet.')
param subnetId string

param adminUsername string = 'azureuser'

param sshPublicKey string

param vmSize string = 'Standard_D2s_v5'

@minValue(0)
@maxValue(1000)
param instanceCount int = 3

@description('How long before a deletion the VMs are told.')
@allowed(['PT5M', 'PT10M', 'PT15M'])
param terminateNotification string = 'PT5M'

@allowed(['Default', 'NewestVM', 'OldestVM'])
param scaleInRule string = 'Default'

@description('How the agent gets onto the VMs.')
@allowed(['application', 'extension'])
param installBy string = 'application'

@description('For application: resource id of the gallery application version (deploy/vm-application).')
param applicationVersionId string = ''

@description('For application: URL of the TOML file; empty: the default of the version.')
param applicationConfigurationUrl string = ''

@description('For extension: the keys of the TOML file, as an object.')
param extensionSettings object = {}

@description('For extension: secrets, such as {"mqtt": {"password": "..."}}.')
@secure()
param extensionProtectedSettings object = {}

@description('Event Hubs namespace in this resource group that the agents use; empty: none.')
param eventHubsNamespace string = ''

@description('Event Grid namespace in this resource group that the agents use; empty: none.')
param eventGridNamespace string = ''

var applications = [
  {
    packageReferenceId: applicationVersionId
    configurationReference: empty(applicationConfigurationUrl) ? null : applicationConfigurationUrl
    order: 1
    treatFailureAsDeploymentFailure: true
  }
]

resource identity 'Microsoft.ManagedIdentity/userAssignedIdentities@2023-01-31' = {
  name: '${name}-sebridge'
  location: location
}

resource eventHubs 'Microsoft.EventHub/namespaces@2024-01-01' existing = if (!empty(eventHubsNamespace)) {
  name: eventHubsNamespace
}

resource eventGrid 'Microsoft.EventGrid/namespaces@2024-06-01-preview' existing = if (!empty(eventGridNamespace)) {
  name: eventGridNamespace
}

// Azure Event Hubs Data Sender
resource eventHubsSender 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(eventHubsNamespace)) {
  name: guid(eventHubsNamespace, name, '2b629674-e913-4c01-ae53-ef4638d8f975')
  scope: eventHubs
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '2b629674-e913-4c01-ae53-ef4638d8f975')
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

// Azure Event Hubs Data Receiver
resource eventHubsReceiver 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(eventHubsNamespace)) {
  name: guid(eventHubsNamespace, name, 'a638d3c7-ab3a-418d-83e6-5f17a39d4fde')
  scope: eventHubs
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'a638d3c7-ab3a-418d-83e6-5f17a39d4fde')
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

// EventGrid TopicSpaces Publisher
resource eventGridPublisher 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(eventGridNamespace)) {
  name: guid(eventGridNamespace, name, 'a12b0b94-b317-4dcd-84a8-502ce99884c6')
  scope: eventGrid
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', 'a12b0b94-b317-4dcd-84a8-502ce99884c6')
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

// EventGrid TopicSpaces Subscriber
resource eventGridSubscriber 'Microsoft.Authorization/roleAssignments@2022-04-01' = if (!empty(eventGridNamespace)) {
  name: guid(eventGridNamespace, name, '4b0f2fd7-60b4-4eca-896f-4435034f8bf5')
  scope: eventGrid
  properties: {
    roleDefinitionId: subscriptionResourceId('Microsoft.Authorization/roleDefinitions', '4b0f2fd7-60b4-4eca-896f-4435034f8bf5')
    principalId: identity.properties.principalId
    principalType: 'ServicePrincipal'
  }
}

resource scaleSet 'Microsoft.Compute/virtualMachineScaleSets@2024-11-01' = {
  name: name
  location: location
  sku: {
    name: vmSize
    tier: 'Standard'
    capacity: instanceCount
  }
  identity: {
    type: 'UserAssigned'
    userAssignedIdentities: {
      '${identity.id}': {}
    }
  }
  properties: {
    orchestrationMode: 'Uniform'
    overprovision: false
    upgradePolicy: {
      mode: 'Manual'
    }
    scaleInPolicy: {
      rules: [
        scaleInRule
      ]
      forceDeletion: false
    }
    virtualMachineProfile: {
      scheduledEventsProfile: {
        terminateNotificationProfile: {
          enable: true
          notBeforeTimeout: terminateNotification
        }
      }
      osProfile: {
        computerNamePrefix: name
        adminUsername: adminUsername
        linuxConfiguration: {
          disablePasswordAuthentication: true
          ssh: {
            publicKeys: [
              {
                path: '/home/${adminUsername}/.ssh/authorized_keys'
                keyData: sshPublicKey
              }
            ]
          }
        }
      }
      storageProfile: {
        imageReference: {
          publisher: 'Canonical'
          offer: 'ubuntu-24_04-lts'
          sku: 'server'
          version: 'latest'
        }
        osDisk: {
          createOption: 'FromImage'
          managedDisk: {
            storageAccountType: 'Premium_LRS'
          }
        }
      }
      networkProfile: {
        networkInterfaceConfigurations: [
          {
            name: 'nic'
            properties: {
              primary: true
              ipConfigurations: [
                {
                  name: 'ip'
                  properties: {
                    subnet: {
                      id: subnetId
                    }
                  }
                }
              ]
            }
          }
        ]
      }
      applicationProfile: {
        galleryApplications: (installBy == 'application') ? applications : []
      }
    }
  }
}

resource agentExtension 'Microsoft.Compute/virtualMachineScaleSets/extensions@2024-11-01' = if (installBy == 'extension') {
  parent: scaleSet
  name: 'sebridge'
  properties: {
    publisher: 'Sebridge'
    type: 'ScheduledEventsBridge'
    typeHandlerVersion: '0.1'
    autoUpgradeMinorVersion: true
    settings: extensionSettings
    protectedSettings: extensionProtectedSettings
  }
}

@description('For mqtt.identity_client_id and eventhubs.identity_client_id.')
output identityClientId string = identity.properties.clientId

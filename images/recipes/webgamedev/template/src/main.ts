import * as Phaser from 'phaser';

class Main extends Phaser.Scene {
  private square!: Phaser.GameObjects.Rectangle;
  private keys!: Phaser.Types.Input.Keyboard.CursorKeys;

  create(): void {
    this.square = this.add.rectangle(400, 300, 48, 48, 0x44aaff);
    this.keys = this.input.keyboard!.createCursorKeys();
  }

  update(_time: number, delta: number): void {
    const step = delta * 0.3;
    if (this.keys.left.isDown) this.square.x -= step;
    if (this.keys.right.isDown) this.square.x += step;
    if (this.keys.up.isDown) this.square.y -= step;
    if (this.keys.down.isDown) this.square.y += step;
  }
}

new Phaser.Game({ type: Phaser.AUTO, parent: 'game', width: 800, height: 600, scene: Main });

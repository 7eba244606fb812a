"""timm's training in form: bfloat16 autocast, mixup, its optimizers and schedules, an average of weights, drop path."""

import sys

import timm
import timm.data
import timm.loss
import timm.optim
import timm.scheduler
import timm.utils
import torch


def main():
    times = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    timm.utils.random_seed(0)
    model = timm.create_model("efficientnet_lite0", pretrained=False, num_classes=10, drop_path_rate=0.1, drop_rate=0.1)
    average = timm.utils.ModelEmaV2(model, decay=0.9)
    mixup = timm.data.Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=10)
    loss_fn = timm.loss.SoftTargetCrossEntropy()
    optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    scheduler, epochs = timm.scheduler.create_scheduler_v2(optimizer, sched="cosine", num_epochs=3, warmup_epochs=1)
    losses = timm.utils.AverageMeter()
    model.train()
    for epoch in range(3):
        images, labels = mixup(torch.randn(8 * times, 3, 64, 64), torch.randint(10, (8 * times,)))
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_fn(model(images), labels)
        loss.backward()
        timm.utils.dispatch_clip_grad(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        average.update(model)
        losses.update(loss.item(), images.size(0))
        scheduler.step(epoch + 1)
        print(f"epoch {epoch}: loss {losses.val!r} ({losses.avg!r})")
    model.eval()
    with torch.inference_mode():
        print(f"norm {model(torch.ones(2, 3, 64, 64)).norm().item()!r}")
    torch.save({"model": model.state_dict(), "average": average.module.state_dict()}, sys.argv[1])


if __name__ == "__main__":
    main()
